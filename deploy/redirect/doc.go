// Package redirect computes the rules by which the kernel passes a Pod's traffic to its Envoy and its agent. It
// converts the flags and environment of istio-iptables, or the annotations of a Pod, to a configuration, and the
// configuration to a set of nftables rules.
//
// Owns: nothing; it is pure. Reads: nothing. Never: calls the kernel (deploy/redirect/kernel applies the rules), reads
// a file, or depends on an address of this machine.
//
// All rules are in one table of the family inet, for IPv4 and IPv6, which the kernel applies in one transaction. Both
// directions and both address families are therefore redirected from the same moment on. Traffic that should reach
// Envoy and cannot is refused or dropped, and never passes in clear.
//
// nftables over netlink (github.com/google/nftables) replaces iptables, so that images need no further program. A dry
// run prints the rules as text, and a test compares the text with the output of nft. navarch-agent redirect is the init
// container. Only its flag --clean removes rules.
package redirect
