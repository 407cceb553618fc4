// AXI4 memory for simulations, without any Python at run time.
//
// Reads and writes are queued and answered in order, with one beat per cycle in each direction
// and any latency. A write takes effect only when its response is due, so a master that does not
// wait for responses reads old data.
//
// Settings, which a testbench may write at any time:
//   read_latency   cycles from the acceptance of AR to the first beat of R, at least 2
//   write_latency  cycles from the acceptance of the last W to B, at least 2
//   stall_*        back-pressure per channel: fraction of stalled cycles, in 1/256
//   random         state of the random numbers, not 0; write it to repeat a run
//   error_lo/hi    beats at [error_lo, error_hi) are answered with SLVERR and not written
// Addresses of BYTES and above are answered with DECERR. A violation of the protocol ends the simulation.
//
// The contents are an array, `mem`. With PROCESS_MEMORY defined, for Verilator only, they are bytes of
// the process (`process_memory.cpp`), which a testbench reads and writes directly, and may share with
// other processes; all cycles are the same. A program can then have only one `memory`.
module memory #(
    parameter DATA_WIDTH = 128,
    parameter ADDR_WIDTH = 40,
    parameter ID_WIDTH = 4,
    parameter BYTES = 1 << 24,
    parameter BURSTS = 256,  // bursts in flight in each direction, a power of two
    parameter BEATS = 2048   // written beats in flight, a power of two
) (
    input wire clk,
    input wire rst,
    input wire [ID_WIDTH-1:0] s_axi_awid,
    input wire [ADDR_WIDTH-1:0] s_axi_awaddr,
    input wire [7:0] s_axi_awlen,
    input wire [2:0] s_axi_awsize,
    input wire [1:0] s_axi_awburst,
    input wire s_axi_awvalid,
    output wire s_axi_awready,
    input wire [DATA_WIDTH-1:0] s_axi_wdata,
    input wire [DATA_WIDTH/8-1:0] s_axi_wstrb,
    input wire s_axi_wlast,
    input wire s_axi_wvalid,
    output wire s_axi_wready,
    output reg [ID_WIDTH-1:0] s_axi_bid,
    output reg [1:0] s_axi_bresp,
    output reg s_axi_bvalid,
    input wire s_axi_bready,
    input wire [ID_WIDTH-1:0] s_axi_arid,
    input wire [ADDR_WIDTH-1:0] s_axi_araddr,
    input wire [7:0] s_axi_arlen,
    input wire [2:0] s_axi_arsize,
    input wire [1:0] s_axi_arburst,
    input wire s_axi_arvalid,
    output wire s_axi_arready,
    output reg [ID_WIDTH-1:0] s_axi_rid,
    output reg [DATA_WIDTH-1:0] s_axi_rdata,
    output reg [1:0] s_axi_rresp,
    output reg s_axi_rlast,
    output reg s_axi_rvalid,
    input wire s_axi_rready
);
    localparam STRB = DATA_WIDTH / 8;
    localparam OFFSET = $clog2(STRB);
    localparam BURST_BITS = $clog2(BURSTS);
    localparam BEAT_BITS = $clog2(BEATS);
    localparam [1:0] OKAY = 0, SLVERR = 2, DECERR = 3;

    reg [15:0] read_latency = 16;
    reg [15:0] write_latency = 16;
    reg [7:0] stall_ar = 0;
    reg [7:0] stall_r = 0;
    reg [7:0] stall_aw = 0;
    reg [7:0] stall_w = 0;
    reg [7:0] stall_b = 0;
    reg [63:0] random = 64'h9e3779b97f4a7c15;
    reg [ADDR_WIDTH-1:0] error_lo = 0;
    reg [ADDR_WIDTH-1:0] error_hi = 0;

    initial begin
        s_axi_bvalid = 0;
        s_axi_rvalid = 0;
    end

    // Random numbers: xorshift64; each channel uses different bits.
    wire [63:0] random_1 = random ^ (random << 13);
    wire [63:0] random_2 = random_1 ^ (random_1 >> 7);
    always @(posedge clk) random <= random_2 ^ (random_2 << 17);

    wire go_ar = random[7:0] >= stall_ar;
    wire go_r = random[19:12] >= stall_r;
    wire go_aw = random[31:24] >= stall_aw;
    wire go_w = random[43:36] >= stall_w;
    wire go_b = random[55:48] >= stall_b;

    reg [63:0] now = 0;
    always @(posedge clk) now <= now + 1;

    function [63:0] due(input [15:0] latency);
        due = now + (latency < 2 ? 64'd2 : {48'd0, latency}) - 1;
    endfunction

    function [ADDR_WIDTH-1:0] following(
        input [ADDR_WIDTH-1:0] address, input [2:0] size, input [1:0] burst);
        if (burst == 0) following = address;
        else following = ((address >> size) + 1) << size;
    endfunction

    function [1:0] response(input [ADDR_WIDTH-1:0] address);
        if ({{(64-ADDR_WIDTH){1'b0}}, address} >= BYTES) response = DECERR;
        else if (address >= error_lo && address < error_hi) response = SLVERR;
        else response = OKAY;
    endfunction

    // Reads: a queue of bursts; `read_beat` beats of the oldest one are done.
    reg [ID_WIDTH-1:0] read_id [0:BURSTS-1];
    reg [ADDR_WIDTH-1:0] read_address [0:BURSTS-1];
    reg [7:0] read_length [0:BURSTS-1];
    reg [2:0] read_size [0:BURSTS-1];
    reg [1:0] read_burst [0:BURSTS-1];
    reg [63:0] read_due [0:BURSTS-1];
    reg [BURST_BITS:0] read_tail = 0;
    reg [BURST_BITS:0] read_head = 0;
    reg [7:0] read_beat = 0;
    reg [ADDR_WIDTH-1:0] read_next = 0;

    wire [BURST_BITS-1:0] read_in = read_tail[BURST_BITS-1:0];
    wire [BURST_BITS-1:0] read_out = read_head[BURST_BITS-1:0];
    wire [BURST_BITS:0] read_count = read_tail - read_head;
    wire [ADDR_WIDTH-1:0] read_now = read_beat == 0 ? read_address[read_out] : read_next;
    wire read_ready = read_count != 0 && now >= read_due[read_out] && go_r;
    wire read_last = read_beat == read_length[read_out];

    assign s_axi_arready = !rst && !read_count[BURST_BITS] && go_ar;

    always @(posedge clk) begin
        if (s_axi_arvalid && s_axi_arready) begin
            check("AR", s_axi_araddr, s_axi_arlen, s_axi_arsize, s_axi_arburst);
            read_id[read_in] <= s_axi_arid;
            read_address[read_in] <= s_axi_araddr;
            read_length[read_in] <= s_axi_arlen;
            read_size[read_in] <= s_axi_arsize;
            read_burst[read_in] <= s_axi_arburst;
            read_due[read_in] <= due(read_latency);
            read_tail <= read_tail + 1;
        end
        if (!s_axi_rvalid || s_axi_rready) begin
            s_axi_rvalid <= read_ready;
            if (read_ready) begin
                s_axi_rid <= read_id[read_out];
                s_axi_rresp <= response(read_now);
                s_axi_rlast <= read_last;
                read_beat <= read_last ? 0 : read_beat + 1;
                read_next <= following(read_now, read_size[read_out], read_burst[read_out]);
                if (read_last) read_head <= read_head + 1;
            end
        end
        if (rst) begin
            s_axi_rvalid <= 0;
            read_tail <= 0;
            read_head <= 0;
            read_beat <= 0;
        end
    end

    // Writes: a queue of bursts that wait for data, and a queue of beats that wait until they are due.
    reg [ID_WIDTH-1:0] write_id [0:BURSTS-1];
    reg [ADDR_WIDTH-1:0] write_address [0:BURSTS-1];
    reg [7:0] write_length [0:BURSTS-1];
    reg [2:0] write_size [0:BURSTS-1];
    reg [1:0] write_burst [0:BURSTS-1];
    reg [BURST_BITS:0] write_tail = 0;
    reg [BURST_BITS:0] write_head = 0;
    reg [7:0] write_beat = 0;
    reg [ADDR_WIDTH-1:0] write_next = 0;

    wire [BURST_BITS-1:0] write_in = write_tail[BURST_BITS-1:0];
    wire [BURST_BITS-1:0] write_out = write_head[BURST_BITS-1:0];
    wire [BURST_BITS:0] write_count = write_tail - write_head;
    wire [ADDR_WIDTH-1:0] write_now = write_beat == 0 ? write_address[write_out] : write_next;
    wire write_last = write_beat == write_length[write_out];

    reg [ID_WIDTH-1:0] beat_id [0:BEATS-1];
    reg [ADDR_WIDTH-1:0] beat_address [0:BEATS-1];
    reg [DATA_WIDTH-1:0] beat_data [0:BEATS-1];
    reg [STRB-1:0] beat_strobe [0:BEATS-1];
    reg beat_last [0:BEATS-1];
    reg [63:0] beat_due [0:BEATS-1];
    reg [BEAT_BITS:0] beat_tail = 0;
    reg [BEAT_BITS:0] beat_head = 0;
    reg [1:0] beat_worst = OKAY;

    wire [BEAT_BITS-1:0] beat_in = beat_tail[BEAT_BITS-1:0];
    wire [BEAT_BITS-1:0] beat_out = beat_head[BEAT_BITS-1:0];
    wire [BEAT_BITS:0] beat_count = beat_tail - beat_head;
    wire [ADDR_WIDTH-1:0] beat_now = beat_address[beat_out];
    wire [1:0] beat_response = response(beat_now);
    wire [1:0] beat_total = beat_response > beat_worst ? beat_response : beat_worst;
    wire respond = beat_last[beat_out];
    wire beat_ready = beat_count != 0 && now >= beat_due[beat_out]
        && (!respond || ((!s_axi_bvalid || s_axi_bready) && go_b));

    assign s_axi_awready = !rst && !write_count[BURST_BITS] && go_aw;
    assign s_axi_wready = !rst && write_count != 0 && !beat_count[BEAT_BITS] && go_w;

    always @(posedge clk) begin
        if (s_axi_awvalid && s_axi_awready) begin
            check("AW", s_axi_awaddr, s_axi_awlen, s_axi_awsize, s_axi_awburst);
            write_id[write_in] <= s_axi_awid;
            write_address[write_in] <= s_axi_awaddr;
            write_length[write_in] <= s_axi_awlen;
            write_size[write_in] <= s_axi_awsize;
            write_burst[write_in] <= s_axi_awburst;
            write_tail <= write_tail + 1;
        end
        if (s_axi_wvalid && s_axi_wready) begin
            if (s_axi_wlast != write_last) $fatal(1, "memory: WLAST at the wrong beat");
            beat_id[beat_in] <= write_id[write_out];
            beat_address[beat_in] <= write_now;
            beat_data[beat_in] <= s_axi_wdata;
            beat_strobe[beat_in] <= s_axi_wstrb;
            beat_last[beat_in] <= write_last;
            beat_due[beat_in] <= due(write_latency);
            beat_tail <= beat_tail + 1;
            write_beat <= write_last ? 0 : write_beat + 1;
            write_next <= following(write_now, write_size[write_out], write_burst[write_out]);
            if (write_last) write_head <= write_head + 1;
        end
        if (s_axi_bready) s_axi_bvalid <= 0;
        if (beat_ready) begin
            beat_head <= beat_head + 1;
            beat_worst <= respond ? OKAY : beat_total;
            if (respond) begin
                s_axi_bvalid <= 1;
                s_axi_bid <= beat_id[beat_out];
                s_axi_bresp <= beat_total;
            end
        end
        if (rst) begin
            s_axi_bvalid <= 0;
            write_tail <= 0;
            write_head <= 0;
            write_beat <= 0;
            beat_tail <= 0;
            beat_head <= 0;
            beat_worst <= OKAY;
        end
    end

    // Contents. A beat that is read and written at the same edge is read as it was before; where the
    // write takes effect at once, one process does both, in this order.
    wire load = (!s_axi_rvalid || s_axi_rready) && read_ready;
    wire store = beat_ready && beat_response == OKAY;
    wire [STRB-1:0] strobe = beat_strobe[beat_out];

`ifdef PROCESS_MEMORY
    import "DPI-C" function longint unsigned process_memory_bytes(input longint unsigned wanted);
    import "DPI-C" function void process_memory_read(
        input longint unsigned address, input int size, output bit [DATA_WIDTH-1:0] data);
    import "DPI-C" function void process_memory_write(
        input longint unsigned address, input int size, input bit [DATA_WIDTH-1:0] data,
        input bit [STRB-1:0] strobe);

    wire [63:0] load_address = {{(64-ADDR_WIDTH){1'b0}}, read_now >> OFFSET} << OFFSET;
    wire [63:0] store_address = {{(64-ADDR_WIDTH){1'b0}}, beat_now >> OFFSET} << OFFSET;
    reg [DATA_WIDTH-1:0] loaded;
    always @(posedge clk) begin
        if ((load || store) && process_memory_bytes(BYTES) < BYTES)
            $fatal(1, "memory: it needs %0d bytes, and was given %0d",
                BYTES, process_memory_bytes(BYTES));
        else begin
            if (load) begin
                loaded = 0;
                if (response(read_now) == OKAY) process_memory_read(load_address, STRB, loaded);
                s_axi_rdata <= loaded;
            end
            if (store) process_memory_write(store_address, STRB, beat_data[beat_out], strobe);
        end
    end
`else
    localparam WORDS = BYTES / STRB;
    reg [DATA_WIDTH-1:0] mem [0:WORDS-1];
    integer word;
    initial for (word = 0; word < WORDS; word = word + 1) mem[word] = 0;

    reg [DATA_WIDTH-1:0] mask;
    integer lane;
    always @* for (lane = 0; lane < STRB; lane = lane + 1) mask[8*lane +: 8] = {8{strobe[lane]}};

    always @(posedge clk) begin
        if (load) s_axi_rdata <= response(read_now) == OKAY ? mem[read_now >> OFFSET] : 0;
        if (store)
            mem[beat_now >> OFFSET] <=
                (mem[beat_now >> OFFSET] & ~mask) | (beat_data[beat_out] & mask);
    end
`endif

    task check(
        input [15:0] channel, input [ADDR_WIDTH-1:0] address, input [7:0] length,
        input [2:0] size, input [1:0] burst);
        if ((1 << size) > STRB || burst > 1 || (burst == 1
            && ((address[11:0] >> size) << size) + (({24'd0, length} + 1) << size) > 4096))
            $fatal(1, "memory: illegal %s: address %h length %0d size %0d burst %0d",
                channel, address, length, size, burst);
    endtask
endmodule
