#!/usr/bin/env python3
"""Makes mixed.pcap, mixed.pcapng and mixed.counts.txt, the captures that the tests read.

Run by hand, in this folder; the results are in the repository. Wants scapy (made with 2.8.0), tcpdump (4.99.3)
and tshark (4.0.17). Nothing is random, so a second run gives the same files.

The counts do not come from this script: each rule has an expression for tcpdump or tshark, and the tool says
which frames match. Bytes are frame bytes as captured, without FCS.
"""

import struct
import subprocess
import sys

from scapy.all import (
    ARP, Dot1AD, Dot1Q, ESP, Ether, GRE, ICMP, ICMPv6EchoRequest, IP, IPOption_Router_Alert, IPv6,
    IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, Raw, TCP, UDP, VXLAN, fragment,
)
from scapy.contrib.mpls import MPLS

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
MULTICAST4, MULTICAST6, BROADCAST = "01:00:5e:00:00:fb", "33:33:00:00:00:01", "ff:ff:ff:ff:ff:ff"


def payload(length, start=0):
    return Raw(bytes((start + i) & 0xFF for i in range(length)))


def v4(src="10.1.0.1", dst="10.2.0.1", **kw):
    return IP(src=src, dst=dst, id=kw.pop("id", 1), **kw)


def v6(src="2001:db8::1", dst="2001:db8::2", **kw):
    return IPv6(src=src, dst=dst, **kw)


def frames():
    eth, back = Ether(src=A, dst=B), Ether(src=B, dst=A)
    for i in range(20):  # name queries and answers, two subnets
        yield eth / v4(dst=f"10.2.{i % 2}.1", tos=(i % 4) << 2) / UDP(sport=40000 + i, dport=53) / payload(20 + i)
        if i % 2:
            yield back / v4("10.2.1.1", "10.1.0.1") / UDP(sport=53, dport=40000 + i) / payload(100 + 7 * i)
    for i in range(28):  # web traffic, some of it large
        size = (0, 0, 400, 1460)[i % 4]
        yield eth / v4() / TCP(sport=50000 + i % 3, dport=443, flags="A", seq=i) / payload(size)
    for i in range(15):
        yield eth / v6(fl=0x12345 + i % 2, tc=0x28) / UDP(sport=40100 + i, dport=53) / payload(30)
        yield eth / v6("2001:db8:1::1") / TCP(sport=50100, dport=443, flags="PA", seq=i) / payload(64)
    for i in range(4):
        yield eth / v6() / ICMPv6EchoRequest(id=1, seq=i)
        yield eth / v6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / UDP(sport=1, dport=53) / payload(8)
    yield eth / v6() / IPv6ExtHdrFragment(m=1, id=7, nh=17) / UDP(sport=2, dport=53, len=80, chksum=1) / payload(40)
    yield eth / v6() / IPv6ExtHdrFragment(offset=6, m=0, id=7, nh=17) / payload(32)
    for i in range(6):
        yield Ether(src=A, dst=BROADCAST) / ARP(psrc="10.1.0.1", pdst=f"10.1.0.{i}", hwsrc=A)
        yield eth / v4() / ICMP(id=1, seq=i) / payload(56)
    for i in range(8):  # multicast
        yield Ether(src=A, dst=MULTICAST4) / v4(dst="224.0.0.251", ttl=255) / UDP(sport=5353, dport=5353) / payload(40)
    for i in range(3):
        yield Ether(src=A, dst=MULTICAST6) / v6(dst="ff02::1", hlim=255) / UDP(sport=5353, dport=5353) / payload(40)
    for i in range(12):  # tagged, tagged twice, service tag alone
        tag = Dot1Q(vlan=100 + i % 2, prio=i % 3)
        yield eth / tag / v4(dst="10.3.0.1") / UDP(sport=41000, dport=(53, 4791)[i % 2]) / payload(32)
        if i % 4 == 0:
            yield eth / tag / v6() / TCP(sport=41000, dport=443)
            yield eth / Dot1AD(vlan=7) / Dot1Q(vlan=100) / v4(dst="10.3.0.2") / UDP(sport=1, dport=53) / payload(32)
            yield eth / Dot1AD(vlan=100) / v4(dst="10.3.0.3") / UDP(sport=1, dport=53) / payload(32)
    for packet in fragment(eth / v4(dst="10.4.0.1", id=9) / UDP(sport=5, dport=53) / payload(1000), 400):
        yield packet
    for i in range(2):
        yield eth / v4(dst="10.4.0.2", flags="DF", options=[IPOption_Router_Alert()]) / UDP(sport=6, dport=53) / payload(9)
    for i in range(8):  # VXLAN; one without the flag that makes its network valid
        inner = Ether(src=B, dst="02:00:00:00:01:0a") / (
            v4("192.168.0.1", "192.168.0.2") / UDP(sport=7, dport=53) / payload(16) if i % 2 else
            v6("fd00::1", "fd00::2") / TCP(sport=7, dport=443))
        flags = 0 if i == 7 else 8
        yield eth / v4(dst="10.5.0.1") / UDP(sport=42000 + i, dport=4789, chksum=0) / VXLAN(vni=42 + i % 3, flags=flags) / inner
    for i in range(4):  # over IPv6, carrying a tagged frame
        inner = Ether(src=B, dst=A) / Dot1Q(vlan=200) / v4("192.168.0.3", "192.168.0.4") / TCP(sport=8, dport=80)
        yield eth / v6() / UDP(sport=42000, dport=4789) / VXLAN(vni=77, flags=8) / inner
    inner4 = v4("172.16.0.1", "172.16.0.2") / UDP(sport=9, dport=53) / payload(12)
    inner6 = v6("fd01::1", "fd01::2") / TCP(sport=9, dport=443)
    for i in range(4):
        yield eth / v4(dst="10.6.0.1") / GRE(proto=0x0800) / inner4
        yield eth / v4(dst="10.6.0.1") / GRE(proto=0x86DD, key_present=1, key=1000 + i % 2) / inner6
        yield eth / v4(dst="10.6.0.1") / GRE(proto=0x6558, key_present=1, seqnum_present=1, chksum_present=1,
                                             key=2000, sequence_number=i) / Ether(src=A, dst=B) / inner4
        yield eth / MPLS(label=100 + i % 2, cos=1, s=1, ttl=64) / inner4
        yield eth / MPLS(label=200, s=0, ttl=64) / MPLS(label=201, s=1, ttl=63) / inner6
        yield eth / v4(dst="10.7.0.1") / UDP(sport=43000, dport=6635) / MPLS(label=300 + i, s=1, ttl=64) / inner4
        yield eth / v4(dst="10.7.0.2") / GRE(proto=0x8847) / MPLS(label=400 + i, s=1, ttl=64) / inner4
        yield eth / v4(dst="10.8.0.1") / ESP(spi=0x1000 + i % 2, seq=i, data=bytes(24))
    for i in range(3):
        yield Ether(src=A, dst="01:80:c2:00:00:0e", type=0x88CC) / payload(40)
    yield eth / v4(dst="10.9.0.1") / UDP(sport=1, dport=53) / payload(8972)
    yield eth / v4(dst="10.9.0.1") / UDP(sport=1, dport=53) / payload(4000)


def records():
    """(captured bytes, original length) of every frame, padded as Ethernet would; some were cut by the capture."""
    for number, frame in enumerate(frames()):
        wire = bytes(frame)
        wire += bytes(max(0, 60 - len(wire)))
        keep = {40: 54, 90: 56, 130: 20}.get(number, len(wire))
        yield wire[:keep], len(wire)


def write_pcap(path, all_records):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for i, (data, length) in enumerate(all_records):
            out.write(struct.pack("<IIII", 1700000000 + i // 10, i % 10 * 100000, len(data), length) + data)


def write_pcapng(path, all_records):
    """Nanoseconds, two interfaces, an unknown block, a second section, simple packets at its end."""
    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    resolution = struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
    interface = block(1, struct.pack("<HHI", 1, 0, 0) + resolution)
    with open(path, "wb") as out:
        out.write(section + interface + interface + block(0x40000BAD, struct.pack("<I", 32473) + b"note"))
        for i, (data, length) in enumerate(all_records):
            time = (1700000000 + i // 10) * 10**9 + i % 10 * 10**8
            if i == 100:
                out.write(section + interface)
            if i >= 170 and len(data) == length:
                out.write(block(3, struct.pack("<I", length) + data))
                continue
            head = struct.pack("<IIIII", i % 2 if i < 100 else 0, time >> 32, time & 0xFFFFFFFF, len(data), length)
            out.write(block(6, head + data))


def outer(*end):
    """The outermost headers: Ethernet, tags, labels, then this."""
    return 'frame.protocols matches "^eth:ethertype:((vlan|ieee8021ad):ethertype:|mpls:)*(%s)(:|$)"' % "|".join(end)


# Rule, tool, expression. A rule is what `uverbs` would match: specs in order, each `name(field=value/mask ...)`, a
# field without a mask is matched whole; `inner-` in front means the headers inside a tunnel.
RULES = [
    ("", "tcpdump", ""),
    ("eth(dst=02:00:00:00:00:0b)", "tcpdump", "ether dst 02:00:00:00:00:0b"),
    ("eth(src=02:00:00:00:00:0b)", "tcpdump", "ether src 02:00:00:00:00:0b"),
    ("eth(dst=01:00:00:00:00:00/01:00:00:00:00:00)", "tcpdump", "ether multicast"),
    ("eth(dst=ff:ff:ff:ff:ff:ff)", "tcpdump", "ether broadcast"),
    ("eth(type=0x0806)", "tcpdump", "arp"),
    ("eth(type=0x88cc)", "tcpdump", "ether proto 0x88cc"),
    ("eth(type=0x8847)", "tcpdump", "mpls"),
    ("eth(type=0x0800)", "tshark", outer("ip") + " && !(frame[12:2] == 88:47)"),
    ("eth(vlan=100/0x0fff)", "tcpdump", "ether[12:2] = 0x8100 and ether[14:2] & 0xfff = 100"),
    ("eth(vlan=0x2000/0xe000)", "tcpdump", "ether[12:2] = 0x8100 and ether[14:2] & 0xe000 = 0x2000"),
    ("ipv4()", "tshark", outer("ip")),
    ("ipv6()", "tshark", outer("ipv6")),
    ("ipv4() udp()", "tshark", outer("ip") + " && ip.proto#1 == 17"),
    ("eth(type=0x0800) ipv4(dst=10.2.0.0/255.255.0.0)", "tcpdump", "dst net 10.2.0.0/16"),
    ("ipv4(dst=10.3.0.1)", "tcpdump", "vlan and ip dst 10.3.0.1"),
    ("ipv4(src=10.2.1.1)", "tcpdump", "src host 10.2.1.1"),
    ("ipv4(proto=1)", "tcpdump", "icmp"),
    ("ipv4(dst=10.2.0.0/255.255.0.0 tos=0x08/0xfc)", "tcpdump", "dst net 10.2.0.0/16 and ip[1] & 0xfc = 8"),
    ("ipv6(dst=2001:db8::2)", "tshark", "ipv6.dst#1 == 2001:db8::2"),
    ("ipv6(src=2001:db8:1::/ffff:ffff:ffff::)", "tcpdump", "ip6 src net 2001:db8:1::/48"),
    ("ipv6(label=0x12345)", "tcpdump", "ip6[0:4] & 0xfffff = 0x12345"),
    ("ipv6(class=0x28)", "tcpdump", "ip6[0:4] & 0x0ff00000 = 0x02800000"),
    ("ipv6(next=58)", "tcpdump", "icmp6"),
    ("ipv4(dst=10.4.0.1)", "tcpdump", "ip dst 10.4.0.1"),
    ("ipv4(dst=10.4.0.1) udp()", "tcpdump", "ip dst 10.4.0.1 and ip proto 17"),
    ("ipv4(dst=10.4.0.1) udp(dst=53)", "tcpdump", "ip dst 10.4.0.1 and udp dst port 53"),
    ("ipv4(dst=10.4.0.2) udp(src=6 dst=53)", "tcpdump", "ip dst 10.4.0.2 and udp src port 6 and udp dst port 53"),
    ("eth(dst=02:00:00:00:00:0b) ipv4(dst=10.2.0.0/255.255.0.0) udp(dst=53)", "tcpdump", "ether dst 02:00:00:00:00:0b and dst net 10.2.0.0/16 and udp dst port 53"),
    ("udp(src=53)", "tcpdump", "udp src port 53"),
    ("eth(type=0x0800) tcp(dst=443)", "tcpdump", "ip and tcp dst port 443"),
    ("eth(type=0x0800) tcp(src=50000/0xfffc)", "tcpdump", "ip and tcp[0:2] & 0xfffc = 50000"),
    ("ipv6(src=2001:db8:1::1) tcp(dst=443)", "tcpdump", "ip6 src 2001:db8:1::1 and tcp dst port 443"),
    ("ipv6(src=2001:db8::1) udp(dst=53)", "tshark", "ipv6.src#1 == 2001:db8::1 && udp.dstport#1 == 53"),
    ("eth(vlan=101/0x0fff) ipv4() udp(dst=4791)", "tcpdump", "vlan 101 and udp dst port 4791"),
    ("eth(vlan=100/0x0fff) ipv6() tcp()", "tcpdump", "vlan 100 and ip6 and tcp"),
    ("udp(dst=4789)", "tshark", "udp.dstport == 4789"),
    ("vxlan(vni=42)", "tshark", "vxlan.flag_i == 1 && vxlan.vni == 42"),
    ("udp(dst=4789) vxlan(vni=77) inner-eth(vlan=200/0x0fff)", "tshark", "vxlan.vni == 77 && vlan.id == 200"),
    ("udp(dst=4789) vxlan(vni=42/0xfffffe)", "tshark", "vxlan.flag_i == 1 && vxlan.vni >= 42 && vxlan.vni <= 43"),
    ("inner-eth(dst=02:00:00:00:01:0a)", "tshark", "vxlan.flag_i == 1 && eth.dst == 02:00:00:00:01:0a"),
    ("vxlan(vni=43) inner-ipv6() inner-tcp(dst=443)", "tshark", "vxlan.flag_i == 1 && vxlan.vni == 43 && ipv6 && tcp.dstport == 443"),
    ("inner-ipv4(dst=192.168.0.2) inner-udp(dst=53)", "tshark", "vxlan.flag_i == 1 && ip.dst == 192.168.0.2 && udp.dstport == 53"),
    ("gre()", "tcpdump", "ip proto 47"),
    ("gre(protocol=0x6558)", "tshark", "gre.proto == 0x6558"),
    ("gre(key=1001)", "tshark", "gre.key == 1001"),
    ("gre(protocol=0x0800) inner-ipv4(dst=172.16.0.2) inner-udp(dst=53)", "tshark", "gre.proto == 0x0800 && ip.dst == 172.16.0.2 && udp.dstport == 53"),
    ("gre(key=2000) inner-eth(src=02:00:00:00:00:0a) inner-ipv4()", "tshark", "gre.key == 2000 && ip.dst == 172.16.0.2"),
    ("mpls(label=0x00064340)", "tcpdump", "ether proto 0x8847 and ether[14:4] = 0x00064340"),
    ("mpls(label=0x000c8000/0xfffff000)", "tshark", "frame[12:2] == 88:47 && mpls.label == 200"),
    ("eth(type=0x8847) ipv4(dst=172.16.0.2) udp(dst=53)", "tshark", "frame[12:2] == 88:47 && ip.dst == 172.16.0.2 && udp.dstport == 53"),
    ("eth(type=0x8847) ipv6() tcp(dst=443)", "tshark", "frame[12:2] == 88:47 && ipv6 && tcp.dstport == 443"),
    ("udp(dst=6635) mpls(label=0x0012d000/0xfffff000)", "tshark", "udp.dstport == 6635 && mpls.label == 301"),
    ("gre() mpls(label=0x00192000/0xfffff000)", "tshark", "gre.proto == 0x8847 && mpls.label == 402"),
    ("udp(dst=6635) mpls() inner-ipv4(dst=172.16.0.2)", "tshark", "udp.dstport == 6635 && ip.dst == 172.16.0.2"),
    ("ipv4(proto=50)", "tcpdump", "ip proto 50"),
    ("ipv4(dst=10.9.0.1)", "tcpdump", "dst host 10.9.0.1"),
]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


def count(path, tool, expression):
    if tool == "tcpdump":
        picked = run("tcpdump", "-r", path, "-w", "-", *([expression] if expression else []))
        total, offset, packets = 0, 24, 0
        while offset < len(picked):
            (length,) = struct.unpack_from("<I", picked, offset + 8)
            total, offset, packets = total + length, offset + 16 + length, packets + 1
        return packets, total
    lengths = run("tshark", "-n", "-r", path, "-Y", expression, "-T", "fields", "-e", "frame.cap_len",
                  "-d", "udp.port==6635,mpls", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE").split()
    return len(lengths), sum(map(int, lengths))


def main():
    all_records = list(records())
    write_pcap("mixed.pcap", all_records)
    write_pcapng("mixed.pcapng", all_records)
    with open("mixed.counts.txt", "w") as out:
        out.write("# Made by make-captures.py: rule, packets, bytes, tool, expression; tabs between.\n")
        for rule, tool, expression in RULES:
            counts = count("mixed.pcap", tool, expression)
            if tool == "tshark":
                again = count("mixed.pcapng", tool, expression)
                assert counts == again, (rule, counts, again)
            out.write("\t".join([rule, *map(str, counts), tool, expression]) + "\n")
            if not counts[0]:
                sys.exit(f"{rule}: no frame matches")


main()
