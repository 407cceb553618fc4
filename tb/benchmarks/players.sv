// Modules around the translation in its benchmarks, without any Python at run time.

// Offers the records of a file one after another, without pauses.
//
// A word of the file is {end, alone, at, payload}. A record is offered from cycle `at` on, and with
// `alone` only after all earlier ones have been answered. A word with `end` follows the last record.
module player #(
    parameter WIDTH = 64,
    parameter NAME = "player",
    parameter WORDS = 1 << 16
) (
    input wire clk,
    input wire load,  // 1: read the file; offers begin when it returns to 0
    input wire [29:0] now,
    output wire valid,
    input wire ready,
    output wire [WIDTH-1:0] payload,
    input wire answered,
    output wire idle
);
    reg [WIDTH+31:0] words [0:WORDS-1];
    reg [31:0] next = 0;
    reg [31:0] open = 0;
    reg loaded = 0;

    wire [WIDTH+31:0] word = words[next];
    wire last = word[WIDTH+31];
    wire alone = word[WIDTH+30];
    wire [29:0] at = word[WIDTH+29:WIDTH];

    assign payload = word[WIDTH-1:0];
    assign valid = !load && !last && now >= at && (!alone || open == 0);
    assign idle = !load && last && open == 0;

    initial words[0] = ~0;

    always @(posedge clk) begin
        loaded <= load;
        if (load) begin
            if (!loaded) $readmemh({NAME, ".hex"}, words);
            next <= 0;
            open <= 0;
        end else begin
            if (valid && ready) next <= next + 1;
            open <= open + {31'd0, valid && ready} - {31'd0, answered};
        end
    end
endmodule

// Page tables: reads of one beat, answered in order, each `latency` cycles after its request.
module tables #(
    parameter WIDTH = 128,
    parameter ADDRESS = 49,
    parameter BYTES = 1 << 24
) (
    input wire clk,
    input wire load,
    input wire [29:0] now,
    input wire [15:0] latency,
    input wire asked,
    input wire [ADDRESS-1:0] address,
    output wire valid,
    output wire [WIDTH-1:0] data
);
    localparam OFFSET = $clog2(WIDTH / 8);

    reg [WIDTH-1:0] mem [0:BYTES/(WIDTH/8)-1];
    reg [ADDRESS-1:0] addresses [0:255];
    reg [29:0] due [0:255];
    reg [7:0] head = 0;
    reg [7:0] tail = 0;
    reg loaded = 0;

    integer word;
    initial for (word = 0; word < BYTES / (WIDTH / 8); word = word + 1) mem[word] = 0;

    assign valid = head != tail && now >= due[head];
    assign data = mem[addresses[head] >> OFFSET];

    always @(posedge clk) begin
        loaded <= load;
        if (load) begin
            if (!loaded) $readmemh("tables.hex", mem);
            head <= 0;
            tail <= 0;
        end else begin
            if (asked) begin
                if (head == tail + 8'd1) $fatal(1, "tables: too many reads");
                addresses[tail] <= address;
                due[tail] <= now + {14'd0, latency};
                tail <= tail + 1;
            end
            if (valid) head <= head + 1;
        end
    end
endmodule
