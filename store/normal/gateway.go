package normal

//lint:file-ignore SA1019 users' YAML still uses deprecated fields

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// gatewayRecords validates an Istio Gateway as Istio's webhook does (pkg/config/validation, ValidateGateway;
// https://istio.io/latest/docs/reference/config/networking/gateway/). The record has hosts, ports and protocols as the
// object states them.
func gatewayRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	defer r.whole("servers")
	gateway := &networkingv1.Gateway{}
	if !r.spec(obj, gateway) {
		return nil
	}
	if len(validation.IsDNS1123Label(obj.ID.Name)) > 0 {
		r.refusef(problem.Invalid, "metadata.name", "%q is no DNS label: want lower-case letters, digits and dashes, at most 63", obj.ID.Name)
	}
	checkGatewaySelector(r, gateway.Selector)
	if len(gateway.Servers) == 0 {
		r.refusef(problem.Required, "spec.servers", "must not be empty: without a server the Gateway has no listener")
	}
	names := map[string]bool{}
	for i, s := range gateway.Servers {
		at := fmt.Sprintf("spec.servers[%d]", i)
		checkServerPort(r, at, s, names)
		if len(s.GetHosts()) == 0 {
			r.requiredf(at+".hosts", "must not be empty")
		}
		for j, h := range s.GetHosts() {
			checkServerHost(r, fmt.Sprintf("%s.hosts[%d]", at, j), h)
		}
		if s.GetTls() != nil {
			checkServerTLS(r, at+".tls", s)
			keepWhatEnvoyTakes(r, at+".tls", s.GetTls())
		}
	}
	if r.spoiled {
		return nil
	}
	return r.record(model.KindGateway, obj, obj.ID.Name, gateway)
}

// whole adds to the first error of a spoiled object that its parts do not apply. The parameter parts names the parts,
// such as "servers".
func (r *report) whole(parts string) {
	i := slices.IndexFunc(r.problems, func(p object.Problem) bool { return p.Severity == problem.Error })
	if r.spoiled && i >= 0 {
		r.problems[i].Message += "; the whole object is invalid: none of its " + parts + " apply, and its last valid version, " +
			"if any, stays in effect"
	}
}

// checkGatewaySelector warns of labels that no Pod can have, such as wildcards. Istio's webhook admits them.
func checkGatewaySelector(r *report, labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(labels[key])) > 0 {
			r.analysef(problem.NoMatchingWorkloadsFound, problem.NoEffect, "spec.selector",
				"no workload can have the label %s=%q: nothing is selected", key, labels[key])
		}
	}
}

// checkServerPort checks port and bind of a server. The parameter names has the port names of the previous servers.
// checkServerPort adds the name of this port.
func checkServerPort(r *report, at string, s *networkingv1.Server, names map[string]bool) {
	p := s.GetPort()
	if p == nil {
		r.requiredf(at+".port", "must not be empty")
		return
	}
	unix := strings.HasPrefix(s.GetBind(), "unix://")
	switch {
	case !unix:
		r.port(at+".port.number", p.Number)
	case p.Number != 0:
		r.errorf(at+".port.number", "must be 0 where bind is a Unix socket")
	case strings.HasSuffix(s.GetBind(), "/"):
		r.errorf(at+".bind", "%q is a folder, no path of a file", s.GetBind())
	}
	checkBind(r, at, s.GetBind(), networkingv1.CaptureMode_DEFAULT)
	switch _, known := protocolNames[strings.ToLower(p.Protocol)]; {
	case p.Protocol == "":
		r.requiredf(at+".port.protocol", "must not be empty")
	case !known:
		r.errorf(at+".port.protocol", "unknown protocol %q: want HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, REDIS or MYSQL", p.Protocol)
	case isTLSProtocol(p.Protocol) && s.GetTls() == nil:
		r.requiredf(at+".tls", "must be stated with protocol %s", p.Protocol)
	case strings.EqualFold(p.Protocol, "UDP"):
		r.warnf(problem.NotSupported, at+".port.protocol", "UDP is not served: the listener is one of TCP, as with Istio")
	}
	switch {
	case p.Name == "":
		r.refusef(problem.Required, at+".port.name", "must not be empty: the name of the route configuration of HTTPS contains it")
	case names[p.Name]:
		r.refusef(problem.Duplicate, at+".port.name", "another port of the Gateway has the name %q: if both use HTTPS, only the "+
			"first one is served",
			p.Name)
	}
	names[p.Name] = true
	if p.TargetPort != 0 {
		r.refusef(problem.NoEffect, at+".port.targetPort", "is not read: the Service of the gateway's Pod translates the port")
	}
}

func isTLSProtocol(name string) bool {
	p := protocolNames[strings.ToLower(name)]
	return p == model.Protocol_PROTOCOL_HTTPS || p == model.Protocol_PROTOCOL_TLS
}

// checkServerHost checks a host of a server: "host" or "namespace/host". The namespace may be "." or "*".
func checkServerHost(r *report, at, text string) {
	namespace, host, has := strings.Cut(text, "/")
	switch {
	case !has:
		host = namespace
	case namespace == "" || host == "":
		r.errorf(at, "%q: namespace and host must not be empty", text)
		return
	case namespace == "~":
		r.refusef(problem.NoEffect, at, "%q: no VirtualService is for the namespace \"~\"", text)
	case namespace != "." && namespace != "*" && len(validation.IsDNS1123Label(namespace)) > 0:
		r.errorf(at, "%q is no namespace: want a name, \".\" or \"*\"", namespace)
	}
	switch wrong := wildcardHost(host); {
	case wrong != "":
		r.errorf(at, "host %q %s", host, wrong)
	case strings.HasPrefix(host, "*-"):
		r.refusef(problem.Invalid, at, "host %q: a wildcard is a whole label", host)
	case host != "*" && !strings.Contains(host, "."):
		r.refusef(problem.Invalid, at, "host %q is not fully qualified", host)
	case host != "*" && !isIP(host):
		r.hostname(at, host)
	}
}

// checkServerTLS checks tls of a server. Contradictory certificates make the Gateway invalid, because the author might
// not intend the certificate that would be served.
func checkServerTLS(r *report, at string, s *networkingv1.Server) {
	tls, protocol := s.GetTls(), strings.ToLower(s.GetPort().GetProtocol())
	mode := tls.GetMode()
	if _, known := networkingv1.ServerTLSSettings_TLSmode_name[int32(mode)]; !known {
		r.errorf(at+".mode", "%v is not known", mode)
		return
	}
	passes := mode == networkingv1.ServerTLSSettings_PASSTHROUGH || mode == networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH
	parsed, known := protocolNames[protocol]
	switch {
	case !known || isTLSProtocol(protocol):
	case !parsed.IsHTTP():
		r.refusef(problem.Invalid, at, "goes with protocol HTTPS or TLS, not %s", s.GetPort().GetProtocol())
	case !passes || tls.ServerCertificate+tls.PrivateKey+tls.CaCertificates != "":
		r.refusef(problem.NoEffect, at, "plain HTTP uses only httpsRedirect: the other fields need protocol HTTPS")
		return
	}
	if tls.HttpsRedirect && !parsed.IsHTTP() {
		r.warnf(problem.NoEffect, at+".httpsRedirect", "is for servers of HTTP without TLS")
	}
	checkServerVersions(r, at, tls)
	if reversedVersions(tls) {
		r.warnf(problem.Invalid, at+".minProtocolVersion", "%v is above maxProtocolVersion %v: connections to the server are closed",
			tls.MinProtocolVersion, tls.MaxProtocolVersion)
	}
	tls.EcdhCurves = knownCurves(r, at+".ecdhCurves", tls.EcdhCurves)
	switch {
	case mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL:
		checkMeshCertificate(r, at, tls)
	case passes:
		checkPassed(r, at, tls)
	default:
		checkServerCertificates(r, at, tls)
	}
}

// keepWhatEnvoyTakes removes cipher suites and curves that would make Envoy refuse a listener, and warns of them.
// Invalid pins of client certificates stay, because an invalid pin matches no client. Without the pins, a server would
// accept further clients.
func keepWhatEnvoyTakes(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	if tls == nil {
		return
	}
	tls.CipherSuites = knownCiphers(r, at+".cipherSuites", tls.CipherSuites, serverCiphers)
	tls.EcdhCurves = knownCurves(r, at+".ecdhCurves", tls.EcdhCurves)
}
