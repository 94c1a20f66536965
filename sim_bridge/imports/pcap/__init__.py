"""Packet captures (pcap, pcapng) as arrivals at the ports of one switch."""
