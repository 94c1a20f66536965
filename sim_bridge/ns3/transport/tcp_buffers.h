// SPDX-License-Identifier: MIT
// ns-3 3.44 walks a sender's list of what is in flight, and a receiver's of what is out of order, for every segment and
// acknowledgement. A retransmission that is lost again leaves thousands of segments there until the timeout, and the
// walks then take four fifths of a run. tcp_buffers.cc has the same functions of ns-3's classes without the walks, and
// with the same results: the linker takes a function from the program before it takes one from a library.
#pragma once

#include <ns3/packet.h>
#include <ns3/sequence-number.h>
#include <ns3/tcp-tx-buffer.h>
#include <ns3/tcp-tx-item.h>

#include <iterator>
#include <list>
#include <map>

namespace foretail::packets::ns3_driver {

/// The segments that a sender has in flight, and an index of those that were lost. A ns3::TcpTxBuffer will do for a
/// socket that sends no data.
class TcpSendBuffer : public ns3::TcpTxBuffer {
public:
    using Sequence = ns3::SequenceNumber32;
    using Items = std::list<ns3::TcpTxItem*>;

    struct Run {  ///< of neighbouring segments
        Sequence end;
        Items::iterator last;
    };

    std::map<Sequence, Run> sacked;             ///< runs of sacked segments by their first byte; no two touch
    std::map<Sequence, Items::iterator> holes;  ///< segments that are lost, not sacked and not sent again
    Sequence lost_below{0};                     ///< segments that begin below it are lost or sacked

    /// Returns the last segment of the run that `item` is in now.
    Items::iterator add_sacked(Sequence begin, Sequence end, Items::iterator item) {
        const auto after = sacked.lower_bound(begin);
        auto run = after == sacked.begin() ? sacked.end() : std::prev(after);
        if (run != sacked.end() && run->second.end == begin) {
            run->second = {end, item};
        } else {
            run = sacked.emplace_hint(after, begin, Run{end, item});
        }
        if (after != sacked.end() && after->first == end) {
            run->second = after->second;
            sacked.erase(after);
        }
        return run->second.last;
    }

    /// Makes the index anew. `begin` and `lost` are the members of an item that only ns3::TcpTxBuffer may name.
    void rebuild(Items& sent, Sequence ns3::TcpTxItem::* begin, bool ns3::TcpTxItem::* lost) {
        sacked.clear();
        holes.clear();
        if (!sent.empty()) lost_below = sent.front()->*begin;
        for (auto it = sent.begin(); it != sent.end(); ++it) {
            const ns3::TcpTxItem& item = **it;
            const Sequence first = item.*begin;
            if (item.IsSacked()) {
                add_sacked(first, first + item.GetPacket()->GetSize(), it);
            } else if (item.*lost && !item.m_retrans) {
                holes.emplace_hint(holes.end(), first, it);
            }
        }
    }
};

}  // namespace foretail::packets::ns3_driver
