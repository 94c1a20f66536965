// SPDX-License-Identifier: MIT
#pragma once

#include "native/hosts/frame.h"
#include "native/tcp/congestion/window.h"
#include "native/tcp/sequence.h"

namespace foretail::packets::native {

/// What the end of a connection remembers of congestion marks. With DCTCP it tells its sender at which byte they began
/// or ended: an acknowledgement that waits is sent first, with the echo of before (RFC 8257, section 3.2).
class MarkEcho {
public:
    explicit MarkEcho(bool dctcp = false) : dctcp_(dctcp) {}

    /// Reads the mark of a packet. `next` is the number that this end waits for; `send_previous(echo, number)`
    /// acknowledges all before a number.
    template <class Send>
    void read(const Frame& frame, Sequence next, Ecn& ecn, Send&& send_previous) {
        // A mark on a segment below the highest one that was marked counts as none.
        if (frame.congestion_experienced && before(highest_marked_, frame.sequence)) {
            highest_marked_ = frame.sequence;
            ecn = Ecn::marked;
            if (dctcp_) turn(true, next, ecn, send_previous);
        } else if (dctcp_ && frame.ecn_capable && ecn != Ecn::disabled) {
            turn(false, next, ecn, send_previous);
        }
    }
    void acknowledged(bool later) { waits_ = later; }

private:
    template <class Send>
    void turn(bool marked, Sequence next, Ecn& ecn, Send&& send_previous) {
        if (marked != marked_ && waits_ && knows_previous_) send_previous(marked_, previous_);
        knows_previous_ = true;
        previous_ = next;
        marked_ = marked;
        if (marked) {
            ecn = Ecn::marked;
        } else if (ecn == Ecn::marked || ecn == Ecn::echoing) {
            ecn = Ecn::idle;
        }
    }

    bool dctcp_;
    Sequence highest_marked_ = 0;
    bool marked_ = false;  ///< the last packet was
    bool waits_ = false;   ///< an acknowledgement does
    bool knows_previous_ = false;
    Sequence previous_ = 0;  ///< what this end waited for when the last packet came
};

/// A server's listening end, which hands what it remembers on to the ends that it makes.
struct Listener {
    MarkEcho echo;
    Ecn ecn = Ecn::disabled;
};

}  // namespace foretail::packets::native
