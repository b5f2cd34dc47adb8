package redirect

import (
	"fmt"
	"net/netip"
	"strings"
)

// TableName is the name of our table, of the family inet. Other tables are neither read nor changed.
const TableName = "navarch"

// Set is the content of the table.
type Set struct {
	Chains []Chain
	// Transparent: packets with this mark are delivered locally by this route table; zero: no such packets.
	Transparent Transparent
}

// Transparent is the policy routing of mode TProxy.
type Transparent struct{ Mark, Table uint32 }

// Len returns the number of rules.
func (s Set) Len() (n int) {
	for _, c := range s.Chains {
		n += len(c.Rules)
	}
	return n
}

// Hook is the position of a chain in the path of packets.
type Hook string

// Hooks of inbound packets, and of packets that the Pod's processes send.
const (
	Prerouting Hook = "prerouting"
	Output     Hook = "output"
)

// Kind is the type of a base chain, by nftables' names.
type Kind string

// Types of base chains. Filter accepts or drops packets. NAT translates the first packet of a connection, and so all of
// them. Route also routes a packet again when its mark has changed.
const (
	Filter Kind = "filter"
	NAT    Kind = "nat"
	Route  Kind = "route"
)

// Priorities of base chains, those of iptables' tables of the same purpose.
const (
	priorityRaw    = -300 // before connection tracking
	priorityMangle = -150
	priorityNAT    = -100
)

// Chain is a base chain; packets that match no rule are accepted.
type Chain struct {
	Name     string
	Kind     Kind
	Hook     Hook
	Priority int32
	Rules    []Rule
}

// Rule performs its actions on packets that match all its conditions.
type Rule struct {
	If []Match
	Do []Action
}

// Field is a compared property of a packet or of its connection.
type Field string

// Fields. A comparison of an address matches only packets of its family.
const (
	InInterface  Field = "iifname"
	OutInterface Field = "oifname"
	Family       Field = "meta nfproto"
	Protocol     Field = "meta l4proto"
	Source       Field = "saddr"
	Destination  Field = "daddr"
	SourcePort   Field = "th sport"
	Port         Field = "th dport"
	UID          Field = "meta skuid"
	GID          Field = "meta skgid"
	Mark         Field = "meta mark"
	ConnMark     Field = "ct mark"
	ConnState    Field = "ct state"
)

// Numbers of address families (Family: AF_INET and AF_INET6), protocols (Protocol), and connection states (ConnState, a
// mask).
const (
	IPv4, IPv6         = 2, 10
	TCP, UDP           = 6, 17
	Invalid, KnownConn = 1, 2 | 4 // KnownConn: established or related
)

// Match compares one field: interfaces by Name, addresses by Prefix, all else by Number.
type Match struct {
	Field  Field
	Not    bool
	Name   string
	Number uint32
	Prefix netip.Prefix
}

// Verb is the kind of an action.
type Verb string

// Verbs. Accept, Drop and RedirectTo end the chain; after the others the rule continues. TransparentTo ends the rule
// without effect if no socket listens at the port.
const (
	Accept        Verb = "accept"
	Drop          Verb = "drop"
	RedirectTo    Verb = "redirect to"
	TransparentTo Verb = "tproxy"
	SetMark       Verb = "meta mark set"
	SaveMark      Verb = "ct mark set meta mark"
	RestoreMark   Verb = "meta mark set ct mark"
	SetZone       Verb = "ct zone set"
)

// Action is a verb with its argument: a port, a mark or a zone. Family belongs to TransparentTo.
type Action struct {
	Verb   Verb
	Number uint32
	Family uint32
}

// String returns the set as input of `nft -f`, which replaces the table in one transaction. Policy routes are comments,
// because nftables does not manage them.
func (s Set) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", TableName)
	for _, c := range s.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n", c.Name, c.Kind, c.Hook, c.Priority)
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	if t := s.Transparent; t.Mark != 0 {
		for _, family := range []string{"-4", "-6"} {
			fmt.Fprintf(&b,
				"# ip %s rule add fwmark %d lookup %d\n# ip %s route add local default dev lo table %d\n", family, t.Mark, t.Table, family, t.Table)
		}
	}
	return b.String()
}

// String returns the rule in nft's language.
func (r Rule) String() string {
	var words []string
	for _, m := range r.If {
		words = append(words, m.String())
	}
	for _, a := range r.Do {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// String returns the comparison in nft's language.
func (m Match) String() string {
	op := " "
	if m.Not {
		op = " != "
	}
	switch m.Field {
	case InInterface, OutInterface:
		return fmt.Sprintf("%s%s%q", m.Field, op, m.Name)
	case Source, Destination:
		ip := "ip"
		if m.Prefix.Addr().Is6() {
			ip = "ip6"
		}
		return fmt.Sprintf("%s %s%s%s", ip, m.Field, op, prefixText(m.Prefix))
	case Family, Protocol:
		return fmt.Sprintf("%s%s%s", m.Field, op, map[uint32]string{IPv4: "ipv4", IPv6: "ipv6", TCP: "tcp", UDP: "udp"}[m.Number])
	case ConnState:
		return fmt.Sprintf("%s%s%s", m.Field, op, map[uint32]string{Invalid: "invalid", KnownConn: "established,related"}[m.Number])
	case SourcePort, Port, UID, GID, Mark, ConnMark:
	}
	return fmt.Sprintf("%s%s%d", m.Field, op, m.Number)
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// String returns the action in nft's language.
func (a Action) String() string {
	switch a.Verb {
	case RedirectTo:
		return fmt.Sprintf("redirect to :%d", a.Number)
	case TransparentTo:
		return fmt.Sprintf("tproxy %s to :%d", map[uint32]string{IPv4: "ip", IPv6: "ip6"}[a.Family], a.Number)
	case SetMark, SetZone:
		return fmt.Sprintf("%s %d", a.Verb, a.Number)
	case Accept, Drop, SaveMark, RestoreMark:
	}
	return string(a.Verb)
}
