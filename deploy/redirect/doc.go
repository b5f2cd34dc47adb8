// Package redirect says by which rules the kernel hands the traffic of a Pod to its Envoy and to its agent: a configuration, by the flags and
// the environment of istio-iptables or by the annotations of a Pod, to a set of nftables rules.
//
// Owns: nothing; it is pure.  Reads: nothing.  Never: the kernel (deploy/redirect/kernel applies the rules), a file, an address of this
// machine.
//
// All rules are in one table of the family inet, for IPv4 and IPv6 alike, which the kernel takes in one transaction: there is no moment at
// which one direction or one address family is redirected and the other is not. Traffic that should reach Envoy and cannot is refused or
// dropped, never let past it.
//
// nftables over netlink (github.com/google/nftables) replaces iptables: no image needs a program for it. A dry run
// prints the rules as text, and a test compares the text with what nft lists. navarch-agent redirect is the init
// container. Only its flag --clean removes rules.
package redirect
