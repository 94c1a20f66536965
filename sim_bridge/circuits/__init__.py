"""Circuit-switched fabrics: periodic schedules of matchings, the static graphs they emulate, and their throughput."""
