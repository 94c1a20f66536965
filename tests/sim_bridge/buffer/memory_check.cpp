// SPDX-License-Identifier: MIT
// Operators new and delete of the ns-3 driver: blocks are aligned, apart from each other and given again, and a size
// that no memory has is refused, also where size and header together would begin again at zero.
#undef NDEBUG
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "ns3/memory.cc"

namespace {

struct Block {
    unsigned char* start;
    std::size_t bytes;
    unsigned char content;
};

bool holds(const Block& block) {
    return std::all_of(block.start, block.start + block.bytes, [&](unsigned char c) { return c == block.content; });
}

/// Blocks of many sizes, of which every third is given back in between.
void blocks() {
    std::vector<Block> kept;
    for (std::size_t round = 0; round < 50; ++round) {
        for (std::size_t bytes = 0; bytes < 1200; bytes += 7) {
            auto* start = static_cast<unsigned char*>(::operator new(bytes));
            assert(reinterpret_cast<std::uintptr_t>(start) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0);
            const auto content = static_cast<unsigned char>(round + bytes);
            std::memset(start, content, bytes);
            kept.push_back({start, bytes, content});
        }
        for (std::size_t i = round % 3; i < kept.size(); i += 3) {
            assert(holds(kept[i]));
            ::operator delete(kept[i].start);
            kept[i] = kept.back();
            kept.pop_back();
        }
    }
    for (const Block& block : kept) {
        assert(holds(block));
        ::operator delete(block.start, block.bytes);
    }
}

void sizes_that_no_memory_has() {
    for (std::size_t less = 0; less < 100; ++less) {
        bool refused = false;
        try {
            ::operator delete(::operator new(std::numeric_limits<std::size_t>::max() - less));
        } catch (const std::bad_alloc&) {
            refused = true;
        }
        assert(refused);
        assert(!::operator new(std::numeric_limits<std::size_t>::max() - less, std::nothrow));
    }
}

}  // namespace

int main() {
    blocks();
    sizes_that_no_memory_has();
}
