// SPDX-License-Identifier: MIT
#include "ns3/transport/tcp_buffers.h"

#include <ns3/abort.h>
#include <ns3/simulator.h>
#include <ns3/tcp-header.h>
#include <ns3/tcp-rx-buffer.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ns3 {

namespace {

using foretail::packets::ns3_driver::TcpSendBuffer;

TcpSendBuffer& index_of(TcpTxBuffer* buffer) { return static_cast<TcpSendBuffer&>(*buffer); }
const TcpSendBuffer& index_of(const TcpTxBuffer* buffer) { return static_cast<const TcpSendBuffer&>(*buffer); }

}  // namespace

TcpTxItem* TcpTxBuffer::CopyFromSequence(uint32_t bytes, const SequenceNumber32& seq) {
    NS_ABORT_MSG_IF(m_firstByteSeq > seq, "asked for a segment that was acknowledged");
    const SequenceNumber32 unsent = m_firstByteSeq.Get() + m_sentSize;
    NS_ABORT_MSG_IF(seq > unsent, "asked for new data behind a gap");
    bytes = std::min(bytes, SizeFromSequence(seq));
    if (bytes == 0) return nullptr;
    // Of a range that is partly in flight only this part is sent again.
    if (seq < unsent) bytes = std::min<uint32_t>(bytes, unsent - seq);
    TcpTxItem* item = seq < unsent ? GetTransmittedSegment(bytes, seq) : GetNewSegment(bytes);
    if (seq == unsent && item->m_lost) index_of(this).rebuild(m_sentList, &TcpTxItem::m_startSeq, &TcpTxItem::m_lost);
    item->m_lastSent = Simulator::Now();
    return item;
}

TcpTxItem* TcpTxBuffer::GetTransmittedSegment(uint32_t bytes, const SequenceNumber32& seq) {
    TcpSendBuffer& index = index_of(this);
    const auto hole = index.holes.find(seq);
    auto at = hole != index.holes.end() ? hole->second : m_sentList.begin();
    while ((*at)->m_startSeq + (*at)->m_packet->GetSize() <= seq) ++at;
    const uint32_t size = (*at)->m_packet->GetSize();
    if ((*at)->m_startSeq == seq) {
        const auto next = std::next(at);
        const bool alike = next != m_sentList.end() && !(*next)->m_sacked && (*at)->m_lost == (*next)->m_lost;
        bytes = std::min(bytes, alike ? size + (*next)->m_packet->GetSize() : size);
    }
    TcpTxItem* item = *at;
    const bool whole = item->m_startSeq == seq && bytes == size;
    if (!whole) item = GetPacketFromList(m_sentList, m_firstByteSeq, bytes, seq);  // cuts segments or joins them
    if (!item->m_retrans) {
        m_retrans += item->m_packet->GetSize();
        item->m_retrans = true;
    }
    if (!whole) {
        index.rebuild(m_sentList, &TcpTxItem::m_startSeq, &TcpTxItem::m_lost);
    } else if (hole != index.holes.end()) {
        index.holes.erase(hole);
    }
    return item;
}

void TcpTxBuffer::DiscardUpTo(const SequenceNumber32& seq, const Callback<void, TcpTxItem*>& discarded) {
    if (m_firstByteSeq >= seq) return;
    const bool lossy = m_sackedOut + m_lostOut > 0;
    bool rebuild = false;
    uint32_t left = seq - m_firstByteSeq.Get();
    while (m_size > 0 && left > 0) {
        if (m_sentList.empty()) CopyFromSequence(left, m_firstByteSeq);  // acknowledged, and never sent
        TcpTxItem* item = m_sentList.front();
        const uint32_t size = item->m_packet->GetSize(), gone = std::min(size, left);
        m_size -= gone;
        m_sentSize -= gone;
        left -= gone;
        m_firstByteSeq += gone;
        RemoveFromCounts(item, gone);
        if (gone == size) {
            m_sentList.pop_front();
            if (!discarded.IsNull()) discarded(item);
            delete item;
        } else {
            item->m_packet = item->m_packet->CreateFragment(gone, size - gone);
            item->m_startSeq += gone;
            rebuild = lossy;
        }
    }
    if (m_size == 0) m_firstByteSeq = seq;  // that of a FIN
    if (lossy) {
        TcpSendBuffer& index = index_of(this);
        const SequenceNumber32 first = m_firstByteSeq.Get();
        while (!index.holes.empty() && index.holes.begin()->first < first) index.holes.erase(index.holes.begin());
        while (!index.sacked.empty() && index.sacked.begin()->second.end <= first) {
            index.sacked.erase(index.sacked.begin());
        }
        TcpTxItem* head = m_sentList.empty() ? nullptr : m_sentList.front();
        if (head != nullptr && head->m_sacked) {  // the receiver has it, and does not acknowledge it
            head->m_sacked = false;
            m_sackedOut -= head->m_packet->GetSize();
            AddRenoSack();
            MarkHeadAsLost();
            rebuild = true;
        }
        if (rebuild) index.rebuild(m_sentList, &TcpTxItem::m_startSeq, &TcpTxItem::m_lost);
    }
    if (m_highestSack.second <= m_firstByteSeq) {
        m_sackSeen = false;
        m_highestSack = {m_sentList.end(), SequenceNumber32(0)};
    }
}

uint32_t TcpTxBuffer::Update(const TcpOptionSack::SackList& blocks, const Callback<void, TcpTxItem*>& sacked) {
    TcpSendBuffer& index = index_of(this);
    if (m_sackedOut == 0) index.lost_below = m_firstByteSeq;
    uint32_t bytes = 0;
    for (const auto& [first, end] : blocks) {
        if (m_firstByteSeq.Get() + m_sentSize < first) return bytes;  // and nothing is counted as lost, as in ns-3
        auto run = index.sacked.upper_bound(first);
        auto at = run == index.sacked.begin() ? m_sentList.begin() : std::next(std::prev(run)->second.last);
        while (at != m_sentList.end()) {
            TcpTxItem* item = *at;
            const SequenceNumber32 begin = item->m_startSeq, after = begin + item->m_packet->GetSize();
            if (after > end) break;
            if (item->m_sacked) {
                at = std::next(index.sacked.find(begin)->second.last);
                continue;
            }
            if (begin < first) {
                ++at;
            } else {
                const uint32_t size = item->m_packet->GetSize();
                if (item->m_lost) {
                    item->m_lost = false;
                    m_lostOut -= size;
                    if (!item->m_retrans) index.holes.erase(begin);
                }
                item->m_sacked = true;
                m_sackedOut += size;
                bytes += size;
                if (m_highestSack.first == m_sentList.end() || m_highestSack.second <= after) {
                    m_sackSeen = true;
                    m_highestSack = {at, begin};
                }
                at = std::next(index.add_sacked(begin, after, at));
                if (!sacked.IsNull()) sacked(item);
            }
        }
    }
    if (bytes > 0) UpdateLostCount();
    return bytes;
}

void TcpTxBuffer::UpdateLostCount() {
    TcpSendBuffer& index = index_of(this);
    uint32_t sacked = 0;
    // The list's own iterator is const, and an index needs one that is not: erasing nothing gives it.
    auto at = m_sentList.erase(m_highestSack.first, m_highestSack.first);
    for (; at != m_sentList.begin() && sacked < m_dupAckThresh; --at) sacked += (*at)->m_sacked;
    if (sacked < m_dupAckThresh) return;
    const auto mark = [&](auto where) {
        TcpTxItem* item = *where;
        item->m_lost = true;
        m_lostOut += item->m_packet->GetSize();
        if (!item->m_retrans) index.holes.emplace(item->m_startSeq, where);
    };
    const SequenceNumber32 top = (*std::next(at))->m_startSeq;  // of the last that was counted
    for (; at != m_sentList.begin() && (*at)->m_startSeq >= index.lost_below; --at) {
        if (!(*at)->m_sacked && !(*at)->m_lost) mark(at);
    }
    if (!m_sentList.front()->m_lost) mark(m_sentList.begin());
    index.lost_below = top;
}

bool TcpTxBuffer::NextSeg(SequenceNumber32* seq, SequenceNumber32* end, bool recovering) const {
    const TcpSendBuffer& index = index_of(this);
    const auto may_be_lost = [&](const SequenceNumber32& begin) { return !m_sackSeen || begin < m_highestSack.second; };
    if (m_lostOut > 0 && !index.holes.empty() && may_be_lost(index.holes.begin()->first)) {
        *seq = index.holes.begin()->first;
        *end = *seq + m_segmentSize;
        return true;
    }
    const SequenceNumber32 unsent = m_firstByteSeq.Get() + m_sentSize;
    if (SizeFromSequence(unsent) > 0) {
        const uint32_t window = m_rWndCallback();
        if (m_sentSize >= window) return false;
        *seq = unsent;
        *end = unsent + std::min(m_segmentSize, window - m_sentSize);
        return true;
    }
    if (!recovering || m_sentList.empty()) return false;
    // All is sent, and what is known to be lost is sent again: the first other segment below the highest sacked one.
    const auto run = index.sacked.upper_bound(index.lost_below);
    PacketList::const_iterator at = m_sentList.begin();
    if (run != index.sacked.begin()) at = std::next(std::prev(run)->second.last);
    for (; at != m_sentList.end() && may_be_lost((*at)->m_startSeq); ++at) {
        if ((*at)->m_retrans || (*at)->m_sacked) continue;
        *seq = (*at)->m_startSeq;
        *end = *seq + m_segmentSize;
        return true;
    }
    return false;
}

bool TcpTxBuffer::IsLost(const SequenceNumber32& seq) const {
    if (seq >= m_highestSack.second) return false;
    for (const TcpTxItem* item : m_sentList) {
        if (item->m_startSeq > seq) break;
        if (seq < item->m_startSeq + item->m_packet->GetSize()) return item->m_lost;
    }
    return false;
}

bool TcpTxBuffer::IsRetransmittedDataAcked(const SequenceNumber32& ack) const {
    for (auto at = m_sentList.begin(); at != m_sentList.end() && (*at)->m_startSeq < ack; ++at) {
        if ((*at)->m_sacked) {
            at = index_of(this).sacked.find((*at)->m_startSeq)->second.last;
        } else if ((*at)->m_retrans && (*at)->m_startSeq + (*at)->m_packet->GetSize() == ack) {
            return true;
        }
    }
    return false;
}

void TcpTxBuffer::SetSentListLost(bool forget_sacked) {
    m_retrans = 0;
    m_lostOut = 0;
    if (forget_sacked) {
        m_sackedOut = 0;
        m_sackSeen = false;
        m_highestSack = {m_sentList.end(), SequenceNumber32(0)};
    }
    for (TcpTxItem* item : m_sentList) {
        item->m_retrans = false;
        if (forget_sacked) item->m_sacked = false;
        if (!item->m_sacked) item->m_lost = true;
        if (item->m_lost) m_lostOut += item->m_packet->GetSize();
    }
    if (!m_sentList.empty()) index_of(this).rebuild(m_sentList, &TcpTxItem::m_startSeq, &TcpTxItem::m_lost);
}

void TcpTxBuffer::MarkHeadAsLost() {
    if (m_sentList.empty()) return;
    TcpTxItem* head = m_sentList.front();
    const uint32_t size = head->m_packet->GetSize();
    if (std::exchange(head->m_sacked, false)) m_sackedOut -= size;
    if (std::exchange(head->m_retrans, false)) m_retrans -= size;
    if (!std::exchange(head->m_lost, true)) m_lostOut += size;
    index_of(this).holes.emplace(head->m_startSeq, m_sentList.begin());
}

bool TcpRxBuffer::Add(Ptr<Packet> packet, const TcpHeader& header) {
    const SequenceNumber32 sent = header.GetSequenceNumber();
    SequenceNumber32 head = std::max<SequenceNumber32>(sent, m_nextRxSeq);
    SequenceNumber32 tail = sent + packet->GetSize();
    if (!m_data.empty()) {
        tail = std::min(tail, m_data.begin()->first + m_maxBuffer);
        head = std::min(head, tail);
    }
    // What is there already overlaps from the packet before `head` on.
    auto at = m_data.upper_bound(head);
    if (at != m_data.begin()) --at;
    while (at != m_data.end() && at->first <= tail) {
        const SequenceNumber32 begin = at->first, end = begin + at->second->GetSize();
        if (end > head) {
            if (begin > head && end < tail) {
                m_size -= at->second->GetSize();
                at = m_data.erase(at);
                continue;
            }
            if (begin <= head) head = end;
            if (end >= tail) tail = begin;
        }
        ++at;
    }
    if (head >= tail) return false;
    packet = packet->CreateFragment(head - sent, tail - head);
    at = m_data.emplace(head, packet).first;
    if (head > m_nextRxSeq) UpdateSackList(head, tail);
    m_size += packet->GetSize();
    for (; at != m_data.end() && at->first == m_nextRxSeq; ++at) {
        m_nextRxSeq = at->first + at->second->GetSize();
        m_availBytes += at->second->GetSize();
        ClearSackList(m_nextRxSeq);
    }
    if (m_gotFin && m_nextRxSeq == m_finSeq) ++m_nextRxSeq;
    return true;
}

}  // namespace ns3
