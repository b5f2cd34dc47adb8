package redirect

import (
	"fmt"
	"net/netip"
	"strconv"

	"istio.io/api/annotation"
)

// Pod contains the parts of a Pod that decide its redirection by the CNI plugin.
type Pod struct {
	Annotations map[string]string
	Env         map[string]string // of the proxy's container
	UID, GID    *int64            // user and group of the proxy; nil: not stated
	// Resolvers are the DNS servers of its resolv.conf, if the Pod states all of them (dnsPolicy None); empty: unknown.
	Resolvers []netip.Addr
}

// alwaysExcluded are the inbound ports of agent and Envoy that are never redirected: merged metrics and probes,
// readiness, Envoy's metrics.
const alwaysExcluded = "15020,15021,15090"

// Config returns the configuration of a Pod, by the annotations that Istio's CNI plugin reads
// (cni/pkg/plugin/sidecar_redirect.go). If the proxy answers DNS, DNS to all servers is captured, as in Istio, because
// resolv.conf is unknown before the Pod's containers run. If the Pod states its servers, only DNS to them is captured,
// as by an init container. One of the servers may be in the Pod itself; its own queries to other servers must then not
// return to the agent. The error names an annotation that cannot be parsed, or a contradiction.
func (p Pod) Config() (Config, error) {
	get := func(name, otherwise string) string {
		if v, is := p.Annotations[name]; is {
			return v
		}
		return otherwise
	}
	t := Text{
		Mode:                 get(annotation.SidecarInterceptionMode.Name, string(Redirect)),
		Inbound:              get(annotation.SidecarTrafficIncludeInboundPorts.Name, "*"),
		InboundExclude:       get(annotation.SidecarTrafficExcludeInboundPorts.Name, "") + "," + alwaysExcluded,
		Outbound:             get(annotation.SidecarTrafficIncludeOutboundIPRanges.Name, "*"),
		OutboundExclude:      get(annotation.SidecarTrafficExcludeOutboundIPRanges.Name, ""),
		OutboundPorts:        get(annotation.SidecarTrafficIncludeOutboundPorts.Name, ""),
		OutboundExcludePorts: get(annotation.SidecarTrafficExcludeOutboundPorts.Name, ""),
		ExcludeInterfaces:    get(annotation.SidecarTrafficExcludeInterfaces.Name, ""),
		VirtualInterfaces:    get(annotation.IoIstioRerouteVirtualInterfaces.Name, get(annotation.SidecarTrafficKubevirtInterfaces.Name, "")),
		OwnerGroups:          p.Env["ISTIO_OUTBOUND_OWNER_GROUPS"],
		OwnerGroupsExclude:   p.Env["ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"],
	}
	if port := get(annotation.SidecarStatusPort.Name, ""); port != "" && port != "0" {
		t.InboundExclude += "," + port
	}
	for _, id := range []struct {
		into *string
		is   *int64
	}{{&t.ProxyUIDs, p.UID}, {&t.ProxyGIDs, p.GID}} {
		if *id.into = strconv.Itoa(DefaultProxyUID); id.is != nil && *id.is != 0 {
			*id.into = strconv.FormatInt(*id.is, 10)
		}
	}
	c, err := t.Config()
	if err != nil {
		return Config{}, err
	}
	for _, flag := range []struct {
		into *bool
		name string
	}{{&c.DNSAll, "ISTIO_META_DNS_CAPTURE"}, {&c.DropInvalid, "INVALID_DROP"}} {
		if text := p.Env[flag.name]; text != "" {
			if *flag.into, err = strconv.ParseBool(text); err != nil {
				return Config{}, fmt.Errorf("environment %s: %.20q: want true or false", flag.name, text)
			}
		}
	}
	if c.DNSAll && len(p.Resolvers) > 0 {
		c.DNSAll, c.DNSServers = false, p.Resolvers
	}
	return c, c.Validate()
}
