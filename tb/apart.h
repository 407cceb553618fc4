// Instances of a module that Verilator compiled as a model of its own (`tb/apart.py`).
//
// An instance sleeps once its inputs are those of the last clock edge and that edge changed none of
// its state: the next one would change none either, so nothing is evaluated. Whether an edge changed
// anything is seen by comparing all of the model's memory, now and then while its inputs stay the
// same. What lies apart inside of a model is in its memory by its outputs. While the outer one
// sleeps, the inner ones go on; it is evaluated when an output of theirs changes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "svdpi.h"
#include "verilated.h"

namespace apart {

// Gives a port its value; returns whether that is another one.
template <typename Port, typename Value>
inline bool put(Port& port, Value value) {
    const bool differs = port != static_cast<Port>(value);
    port = static_cast<Port>(value);
    return differs;
}

template <std::size_t Words>
inline bool put(VlWide<Words>& port, const svBitVecVal* value) {
    const bool differs = std::memcmp(port.data(), value, 4 * Words) != 0;
    std::memcpy(port.data(), value, 4 * Words);
    return differs;
}

template <std::size_t Words>
inline bool put(VlWide<Words>& port, const VlWide<Words>& value) {
    return put(port, value.data());
}

template <std::size_t Words>
inline void get(svBitVecVal* value, const VlWide<Words>& port) {
    std::memcpy(value, port.data(), 4 * Words);
}

class Inner {
public:
    virtual ~Inner() = default;
    // The next rising edge, while inputs stay as they are; returns whether outputs have changed.
    virtual bool ahead() = 0;
    // The edge that `ahead` was made for is over.
    virtual void meet() = 0;

protected:
    static inline thread_local std::vector<Inner*>* s_outer = nullptr;  // parts of what is built
};

// `Model`: what Verilator wrote; `Root`: its variables, of which `previous` is the clock as it was
// last seen. `Outputs`: a copy of them, which `take` brings up to date.
template <typename Model, typename Root, CData Root::*previous, typename Outputs>
class Instance final : public Inner {
public:
    Model model{Verilated::defaultContextp(), "apart"};
    Outputs outputs;

    Instance() {
        if (s_outer) s_outer->push_back(this);
        std::vector<Inner*>* const outer = s_outer;
        s_outer = &m_inside;
        model.clk = 0;
        model.eval();
        s_outer = outer;
        outputs.take(model);
    }

    // After inputs that outputs follow.
    void settle(bool changed) {
        if (!changed) return;
        m_changed = true;
        model.eval();
        outputs.take(model);
    }

    // A rising edge of the clock; `changed`: another input than those of `settle`. Returns whether
    // outputs have changed.
    bool edge(bool changed) {
        if (!m_met) return advance(changed) && outputs.take(model);
        m_met = false;
        outputs = m_ahead;
        return m_told;
    }

    // The outputs are still asked for as they are before the edge.
    bool ahead() override {
        m_ahead = outputs;
        m_told = advance(false) && m_ahead.take(model);
        m_met = true;
        return m_told;
    }

    void meet() override { m_met = false; }

private:
    static constexpr int most_patience = 32;

    // Returns false when nothing could change.
    bool advance(bool changed) {
        if (changed || m_changed) {
            m_changed = m_asleep = false;
            m_same = 0;
        } else if (m_asleep) {
            if (!inside_moves()) return false;
            m_asleep = false;
            m_same = 0;
        } else {
            ++m_same;
        }
        const bool look = m_same >= m_patience;
        if (look) std::memcpy(m_before, root(), sizeof(Root));
        step();
        if (look) {
            m_asleep = std::memcmp(m_before, root(), sizeof(Root)) == 0;
            m_patience = m_asleep ? 1 : std::min(2 * m_patience, most_patience);
            m_same = 0;
        }
        return true;
    }

    Root* root() { return static_cast<Root*>(model.rootp); }

    void step() {
        model.clk = 1;
        model.eval();
        // So that nothing has to be evaluated when the clock falls.
        model.clk = 0;
        root()->*previous = 0;
    }

    bool inside_moves() {
        bool moves = false;
        for (Inner* inner : m_inside) moves |= inner->ahead();
        if (!moves) {
            for (Inner* inner : m_inside) inner->meet();
        }
        return moves;
    }

    bool m_changed = true;  // since the last edge
    bool m_asleep = false;
    bool m_met = false;  // an edge was made ahead: outputs after it, and whether they have changed
    Outputs m_ahead;
    bool m_told = false;
    int m_same = 0;  // edges with the same inputs, since state was looked at
    int m_patience = 1;
    std::vector<Inner*> m_inside;
    alignas(Root) unsigned char m_before[sizeof(Root)];
};

}  // namespace apart
