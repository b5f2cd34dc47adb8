package redirect

import (
	"fmt"
	"net/netip"
	"strings"
)

// TableName is the name of our table, of the family inet. Nobody else's tables are read or changed.
const TableName = "navarch"

// Set is the whole table.
type Set struct {
	Chains []Chain
	// Transparent: packets with this mark are delivered locally, by this route table; zero: there are none.
	Transparent Transparent
}

// Transparent is the policy routing of mode TProxy.
type Transparent struct{ Mark, Table uint32 }

// Len is how many rules there are.
func (s Set) Len() (n int) {
	for _, c := range s.Chains {
		n += len(c.Rules)
	}
	return n
}

// Hook is where packets pass.
type Hook string

// The hooks of what comes in and of what processes of the Pod send.
const (
	Prerouting Hook = "prerouting"
	Output     Hook = "output"
)

// Kind is the type of a base chain, in nftables' words.
type Kind string

// The types of base chains: Filter decides, NAT translates the first packet of a connection and with it all of them, Route decides and has the
// packet routed again where its mark has changed.
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

// Chain is a base chain; what no rule decides is accepted.
type Chain struct {
	Name     string
	Kind     Kind
	Hook     Hook
	Priority int32
	Rules    []Rule
}

// Rule does something with packets that match everything it names.
type Rule struct {
	If []Match
	Do []Action
}

// Field is what of a packet, or of its connection, is compared.
type Field string

// The fields. A comparison of an address holds for packets of its family alone.
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

// Numbers of families (Family, AF_INET and AF_INET6), protocols (Protocol) and states of connections (ConnState, a mask).
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

// Verb is what a rule does.
type Verb string

// The verbs. Accept and Drop end the chain; Redirect does, too; after the others the rule goes on. Transparent ends the rule, without an
// effect, where no socket listens at the port.
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

// Action is a verb with its argument: a port, a mark, a zone. Family is that of TransparentTo.
type Action struct {
	Verb   Verb
	Number uint32
	Family uint32
}

// String is the set as the input of `nft -f`: it replaces the table, in one transaction. Policy routes, which are not nftables', are
// comments.
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
			fmt.Fprintf(&b, "# ip %s rule add fwmark %d lookup %d\n# ip %s route add local default dev lo table %d\n", family, t.Mark, t.Table, family, t.Table)
		}
	}
	return b.String()
}

// String is the rule in nft's language.
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

// String is the comparison in nft's language.
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

// String is the action in nft's language.
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
