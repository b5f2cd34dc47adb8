package redirect

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Text is a Config in the form of flags, environment variables and annotations: lists are separated by commas, "*"
// means everything. An empty number has its default.
type Text struct {
	OutboundPort, InboundPort, TunnelPort string
	ProxyUIDs, ProxyGIDs                  string
	Mode, Mark, RouteTable                string
	Inbound, InboundExclude               string
	Outbound, OutboundExclude             string
	OutboundPorts, OutboundExcludePorts   string
	ExcludeInterfaces, VirtualInterfaces  string
	OwnerGroups, OwnerGroupsExclude       string
}

// Config parses the text; the caller adds the DNS settings. The error names what cannot be parsed: every part is parsed
// or refused, because traffic that is not redirected passes in clear.
func (t Text) Config() (c Config, err error) {
	r := reader{}
	c = Default()
	r.port(&c.OutboundPort, "outbound port", t.OutboundPort)
	r.port(&c.InboundPort, "inbound port", t.InboundPort)
	r.port(&c.TunnelPort, "tunnel port", t.TunnelPort)
	r.number(&c.Mark, "mark", t.Mark)
	r.number(&c.RouteTable, "route table", t.RouteTable)
	if t.ProxyUIDs != "" {
		c.ProxyUIDs = r.numbers("user of the proxy", t.ProxyUIDs)
		c.ProxyGIDs = c.ProxyUIDs // as in istio-iptables
	}
	if t.ProxyGIDs != "" {
		c.ProxyGIDs = r.numbers("group of the proxy", t.ProxyGIDs)
	}
	if t.Mode != "" {
		c.Mode = Mode(t.Mode)
	}
	c.Inbound = r.ports("inbound ports", t.Inbound)
	c.InboundExclude = r.listOfPorts("excluded inbound ports", t.InboundExclude)
	c.Outbound = Prefixes{All: t.Outbound == "*"}
	if !c.Outbound.All {
		c.Outbound.List = r.prefixes("outbound destinations", t.Outbound)
	}
	c.OutboundExclude = r.prefixes("excluded outbound destinations", t.OutboundExclude)
	c.OutboundPorts = r.listOfPorts("outbound ports", t.OutboundPorts)
	c.OutboundExcludePorts = r.listOfPorts("excluded outbound ports", t.OutboundExcludePorts)
	c.ExcludeInterfaces, c.VirtualInterfaces = split(t.ExcludeInterfaces), split(t.VirtualInterfaces)
	if t.OwnerGroups != "*" {
		c.OwnerGroups = r.numbers("owner groups", t.OwnerGroups)
	}
	c.OwnerGroupsExclude = r.numbers("excluded owner groups", t.OwnerGroupsExclude)
	if len(c.OwnerGroups) > 0 && len(c.OwnerGroupsExclude) > 0 {
		r.fail("owner groups", "some are included and some excluded: want one of the two")
	}
	if r.err != nil {
		return Config{}, r.err
	}
	return c, nil
}

func split(text string) (out []string) {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// reader stores the first error.
type reader struct{ err error }

func (r *reader) fail(what, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", what, why)
	}
}

func (r *reader) number(into *uint32, what, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		r.fail(what, fmt.Sprintf("%.40q is no number of 32 bits", text))
	}
	*into = uint32(n)
}

func (r *reader) numbers(what, text string) (out []uint32) {
	for _, word := range split(text) {
		var n uint32
		r.number(&n, what, word)
		out = append(out, n)
	}
	return out
}

func (r *reader) port(into *uint16, what, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		r.fail(what, fmt.Sprintf("%.40q is no port", text))
	}
	*into = uint16(n)
}

func (r *reader) listOfPorts(what, text string) (out []uint16) {
	for _, word := range split(text) {
		if word == "0" {
			continue // no connection has port 0, which Istio's injector accepts
		}
		var n uint16
		r.port(&n, what, word)
		out = append(out, n)
	}
	return out
}

func (r *reader) ports(what, text string) Ports {
	if strings.TrimSpace(text) == "*" {
		return Ports{All: true}
	}
	return Ports{List: r.listOfPorts(what, text)}
}

func (r *reader) prefixes(what, text string) (out []netip.Prefix) {
	for _, word := range split(text) {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(word); err == nil {
				p = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if err != nil || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			r.fail(what, fmt.Sprintf("%.60q is no range of addresses (CIDR)", word))
			continue
		}
		out = append(out, p.Masked())
	}
	return out
}
