package normal

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// sidecarRecords returns the record of a Sidecar, in which all hosts are fully qualified.
func sidecarRecords(n *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	sidecar := &networkingv1.Sidecar{}
	if !r.spec(obj, sidecar) {
		return nil
	}
	r.selector("spec.workloadSelector.labels", sidecar.WorkloadSelector.GetLabels())
	if len(sidecar.Egress)+len(sidecar.Ingress) == 0 && sidecar.OutboundTrafficPolicy == nil && sidecar.InboundConnectionPool == nil {
		r.refusef(problem.Required, "spec", "at least one of egress, ingress, outboundTrafficPolicy and inboundConnectionPool is needed")
	}
	checkIngress(r, sidecar.Ingress)
	checkPool(r, "spec.inboundConnectionPool", sidecar.InboundConnectionPool)
	listeners, catchAll := map[string]bool{}, false
	for i, e := range sidecar.Egress {
		at := fmt.Sprintf("spec.egress[%d]", i)
		if e.Port == nil && e.Bind == "" {
			if catchAll {
				r.errorf(at+".port", "only one egress listener may be without a port")
			} else if i != len(sidecar.Egress)-1 {
				r.errorf(at+".port", "must not be empty but in the last egress listener")
			}
			catchAll = true
		}
		if e.Port != nil {
			checkSidecarPort(r, at, e.Port, e.Bind, e.CaptureMode, listeners)
		}
		checkBind(r, at, e.Bind, e.CaptureMode)
		if len(e.Hosts) == 0 {
			r.requiredf(at+".hosts", "must not be empty")
		}
		for j, h := range e.Hosts {
			e.Hosts[j] = n.egressHost(r, fmt.Sprintf("%s.hosts[%d]", at, j), h, obj.ID.Namespace)
		}
		e.Hosts = sortedSet(e.Hosts)
		checkExcluded(r, at+".hosts", e.Hosts)
	}
	if p := sidecar.OutboundTrafficPolicy.GetEgressProxy(); p != nil {
		if wrong := plainHost(p.Host); wrong != "" {
			r.errorf("spec.outboundTrafficPolicy.egressProxy.host", "%q %s", p.Host, wrong)
		}
		if p.Port != nil && (p.Port.Number < 1 || p.Port.Number > 65535) {
			r.refusef(problem.Invalid, "spec.outboundTrafficPolicy.egressProxy.port.number", "port %d is not in 1-65535", p.Port.Number)
		}
		if mode := sidecar.OutboundTrafficPolicy.Mode; mode != networkingv1.OutboundTrafficPolicy_ALLOW_ANY {
			r.refusef(problem.NoEffect, "spec.outboundTrafficPolicy.egressProxy", "goes with mode ALLOW_ANY, not %v", mode)
		}
		if p.Port == nil {
			r.refusef(problem.Required, "spec.outboundTrafficPolicy.egressProxy.port",
				"must be stated: without it connections to unknown destinations are closed")
		}
		p.Host = n.fqdn(p.Host, obj.ID.Namespace)
	}
	if r.spoiled {
		return nil
	}
	return r.record(model.KindSidecar, obj, obj.ID.Name, sidecar)
}

// noHosts is the egress host that imports no hosts.
const noHosts = "~/*"

// checkExcluded warns of egress hosts without effect: hosts beside "~/*", and exclusions without an imported host.
func checkExcluded(r *report, at string, hosts []string) {
	isExcluded := func(h string) bool { return strings.HasPrefix(h, "~") }
	switch {
	case len(hosts) > 1 && slices.Contains(hosts, noHosts):
		r.warnf(problem.NoEffect, at, "%q imports nothing, and the hosts beside it are without effect", noHosts)
	case len(hosts) > 0 && !slices.Contains(hosts, noHosts) && !slices.ContainsFunc(hosts, func(h string) bool { return !isExcluded(h) }):
		r.warnf(problem.NoEffect, at, "all entries exclude hosts, but no entry imports hosts")
	}
}

// egressHost validates an entry "namespace/host" in the hosts of an egress listener. It returns the entry with a fully
// qualified host. The parameter namespace is the namespace of the Sidecar.
//
// In an entry, the namespace "." stands for the namespace of the proxy. It is the namespace of the Sidecar, unless the
// Sidecar is in the root namespace. The namespace "*" stands for all namespaces. A "~" before the namespace excludes
// the host, and "~" alone means "~*" (IstioEgressListener.hosts in sidecar.proto). The result has "~*" in place of "~",
// because older versions of Navarch import nothing for "~". Only for the entries "~/*" and "~*/*", the result is "~/*".
func (n *Normalizer) egressHost(r *report, at, text, namespace string) string {
	ns, host, ok := strings.Cut(text, "/")
	if !ok || strings.Contains(host, "/") {
		r.errorf(at, "%q must have the form namespace/host", text)
		return text
	}
	name, excluded := strings.CutPrefix(ns, "~")
	if excluded && name == "" {
		name = "*"
	}
	if name != "." && name != "*" && len(validation.IsDNS1123Label(name)) > 0 {
		r.errorf(at, "%q is no namespace: want a name, \".\" or \"*\", with \"~\" before it to exclude the host, or \"~\"", ns)
	}
	switch wrong := wildcardHost(host); {
	case wrong != "":
		r.errorf(at, "host %q %s", host, wrong)
	case host != "*" && !strings.Contains(host, ".") && name == "*":
		r.refusef(problem.NoEffect, at, "host %q is not fully qualified and matches nothing", host)
	case host != "*" && !strings.Contains(host, "."):
		r.refusef(problem.Invalid, at, "host %q is not fully qualified: want %s", host,
			n.fqdn(host, cmp.Or(strings.Trim(name, "."), namespace)))
	case strings.HasPrefix(host, "*-"):
		r.refusef(problem.Invalid, at, "host %q: a wildcard is a whole label", host)
	default:
		r.hostname(at, host)
	}
	sign := ""
	if excluded {
		sign = "~"
	}
	if name == "*" {
		if host == "*" && excluded {
			return noHosts
		}
		return sign + name + "/" + strings.ToLower(host)
	}
	if name != "." {
		namespace = name
	}
	return sign + name + "/" + n.fqdn(host, namespace)
}

// checkIngress validates the ingress listeners of a Sidecar.
func checkIngress(r *report, ingress []*networkingv1.IstioIngressListener) {
	listeners := map[string]bool{}
	for i, in := range ingress {
		at := fmt.Sprintf("spec.ingress[%d]", i)
		if in.Port == nil {
			r.requiredf(at+".port", "must not be empty")
			continue
		}
		checkSidecarPort(r, at, in.Port, in.Bind, in.CaptureMode, listeners)
		if checkBind(r, at, in.Bind, in.CaptureMode); strings.HasPrefix(in.Bind, "unix://") {
			r.refusef(problem.Invalid, at+".bind", "%q: an ingress listener is bound to an address", in.Bind)
		}
		checkPool(r, at+".connectionPool", in.ConnectionPool)
		checkDefaultEndpoint(r, at+".defaultEndpoint", in.DefaultEndpoint)
		checkIngressTLS(r, at+".tls", in.Port, in.Tls)
	}
}

// checkDefaultEndpoint validates a defaultEndpoint by the rules of Istio: "", 127.0.0.1:port, [::1]:port, 0.0.0.0:port,
// [::]:port or unix:///path (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener).
func checkDefaultEndpoint(r *report, at, endpoint string) {
	if endpoint == "" {
		return
	}
	if path, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		if !isSocketPath(path) {
			r.errorf(at, "%q is not an absolute path", path)
		}
		return
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		r.errorf(at, "%q must be address:port or unix://path", endpoint)
		return
	}
	if !slices.Contains([]string{"127.0.0.1", "0.0.0.0", "::1", "::"}, host) {
		r.errorf(at, "%q must be 127.0.0.1, 0.0.0.0 (the workload's own address), [::1] or [::]", host)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		r.errorf(at, "%q is no port: want 1 to 65535", port)
	}
}

// checkSidecarPort validates the port of a listener. The map seen has the ports of the previous listeners, and
// checkSidecarPort adds this port to it. Istio's webhook refuses two listeners with the same port and different binds,
// although istiod applies both.
func checkSidecarPort(r *report, at string, p *networkingv1.SidecarPort, bind string, mode networkingv1.CaptureMode, seen map[string]bool) {
	unix := strings.HasPrefix(bind, "unix://")
	if !unix {
		r.port(at+".port.number", p.Number)
	} else if p.Number != 0 {
		r.errorf(at+".port.number", "must be 0 where bind is a Unix socket")
	}
	if p.Name != "" {
		r.name(at+".port.name", p.Name)
	}
	if _, known := protocolNames[strings.ToLower(p.Protocol)]; !known && p.Protocol != "" {
		r.errorf(at+".port.protocol", "unknown protocol %q", p.Protocol)
	}
	key, number := fmt.Sprintf("%s|%d", bind, p.Number), strconv.FormatUint(uint64(p.Number), 10)
	switch {
	case seen[key]:
		r.duplicatef(at+".port.number", "another listener has bind %q and port %d too", bind, p.Number)
	case !unix && seen[number]:
		r.refusef(problem.Duplicate, at+".port.number", "another listener has port %d too", p.Number)
	}
	seen[key], seen[number] = true, true
	if p.TargetPort != 0 {
		r.refusef(problem.NoEffect, at+".port.targetPort", "is not read: defaultEndpoint says where requests go")
	}
	if unix && mode == networkingv1.CaptureMode_IPTABLES {
		r.errorf(at+".captureMode", "traffic to a Unix socket cannot be captured by IPTABLES")
	}
}

// checkBind validates the bind address and the capture mode of a listener.
func checkBind(r *report, at, bind string, mode networkingv1.CaptureMode) {
	if path, ok := strings.CutPrefix(bind, "unix://"); ok {
		if !isSocketPath(path) {
			r.errorf(at+".bind", "%q is not an absolute path", path)
		}
	} else if bind != "" && !isIP(bind) {
		r.errorf(at+".bind", "%q is neither an IP address nor unix://path", bind)
	}
	if _, known := networkingv1.CaptureMode_name[int32(mode)]; !known {
		r.errorf(at+".captureMode", "unknown value %d", mode)
	}
}
