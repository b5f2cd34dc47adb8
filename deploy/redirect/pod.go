package redirect

import (
	"fmt"
	"net/netip"
	"strconv"

	"istio.io/api/annotation"
)

// Pod is what of a Pod decides how it is redirected, where it has no init container for that.
type Pod struct {
	Annotations map[string]string
	Env         map[string]string // of the proxy's container
	UID, GID    *int64            // that the proxy runs as; nil: not stated
	// Resolvers are the servers that its resolv.conf will have, where the Pod states them all (dnsPolicy None); none: they are not known.
	Resolvers []netip.Addr
}

// alwaysExcluded are the inbound ports of the agent and of Envoy that are not for redirection: merged metrics and probes, readiness, Envoy's
// metrics.
const alwaysExcluded = "15020,15021,15090"

// Config is the configuration of a Pod, by the annotations that Istio's CNI plugin reads (cni/pkg/plugin/sidecar_redirect.go). DNS of all servers
// is captured where the proxy answers it, as there: before the Pod's containers run nobody knows its resolv.conf. Where the Pod states it, DNS of those
// servers is, as by an init container: one of them may be in the Pod itself, which the agent asks, and which would be answered by the agent again if what it
// asks of others were captured, too. An error names what cannot be understood, or what does not go together.
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
