package traffic

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Discovery says how Envoy finds the endpoints of a cluster.
type Discovery uint8

// The ways of Discovery, in Envoy's words.
const (
	EDS         Discovery = iota
	StrictDNS             // all addresses that the names of its endpoints have
	LogicalDNS            // one endpoint, at whichever address its name has when a connection is made
	OriginalDst           // where the connection was going to
	Dynamic               // whatever name of a wildcard a client asks for, resolved as it does
)

// resolved is how endpoints are found by the resolution of a service.
var resolved = map[model.Resolution]Discovery{
	model.Resolution_RESOLUTION_EDS: EDS, model.Resolution_RESOLUTION_NONE: OriginalDst, model.Resolution_RESOLUTION_DNS: StrictDNS,
	model.Resolution_RESOLUTION_DNS_ROUND_ROBIN: LogicalDNS, model.Resolution_RESOLUTION_DYNAMIC_DNS: Dynamic,
}

// DiscoveryByResolution decides it for a service by its resolution alone: for clients that cannot be left the choice of the endpoint.
func DiscoveryByResolution(service *model.Service) Discovery {
	return resolved[service.Spec.GetResolution()]
}

// DiscoveryOf decides it for a service. A headless Kubernetes service has no address of its own: the client has chosen the Pod.
// PASSTHROUGH leaves the choice to the client everywhere
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#LoadBalancerSettings-SimpleLB).
func DiscoveryOf(service *model.Service, p Policy) Discovery {
	hashes := p.Balancer.GetConsistentHash() != nil // stands over a simple balancer
	chosen := Headless(service) || !hashes && p.Balancer.GetSimple() == networkingv1.LoadBalancerSettings_PASSTHROUGH
	if by := DiscoveryByResolution(service); by == Dynamic || !chosen {
		return by
	}
	return OriginalDst
}

// Headless says whether clients choose the Pod of a Kubernetes service themselves.
func Headless(service *model.Service) bool {
	return service.Spec.GetHeadless() && service.Key.Kind == model.KindService && service.Spec.GetResolution() == model.Resolution_RESOLUTION_EDS
}

// TLS says how connections of a cluster are secured.
type TLS uint8

// The ways of TLS.
const (
	Plaintext     TLS = iota
	AutoEndpoints     // the mesh's mTLS to endpoints that say tlsMode istio, in the clear to the others; no rule asked for it
	AutoAll           // the mesh's mTLS to all: Envoy does not know the endpoints, and all are known to have it; no rule asked for it
	Mutual            // the mesh's mTLS, as a rule asks
	Originate         // TLS that is not the mesh's own, as a rule asks
	Closed            // a rule asks for what cannot be given: nothing is sent, since in the clear is no choice
)

// Client is what TLSOf reads of those who connect.
type Client struct {
	Identity bool // the proxy has a certificate of the mesh
	Secrets  bool // it may ask for the Secret of credentialName
	OwnTLS   bool // what it forwards is TLS of the application
}

// TLSOf decides how connections are secured: as the policy says, else automatically. Where the policy asks for what cannot be given the answer is Closed,
// with the problem: ISTIO_MUTUAL for a proxy without a certificate of the mesh; credentialName of a rule that is not for the proxy's workload alone; MUTUAL
// without certificates. TLS of the application is not closed for such a credentialName: it goes as it is, as with istiod, with a warning.
func TLSOf(p Policy, c Client, automatic TLS) (TLS, *model.Problem) {
	closed := func(code problem.Code, field, message string) (TLS, *model.Problem) {
		at := p.TLSAt
		if field != "" {
			at = Within(at, field)
		}
		return Closed, &model.Problem{Key: at.Key, Field: at.Field, Code: code, Severity: problem.Error, Message: message + "; the cluster is closed"}
	}
	mode := p.TLS.GetMode()
	switch {
	case p.TLS == nil && c.Identity:
		return automatic, nil
	case p.TLS == nil, mode == networkingv1.ClientTLSSettings_DISABLE:
		return Plaintext, nil
	case mode == networkingv1.ClientTLSSettings_ISTIO_MUTUAL && c.Identity:
		return Mutual, nil
	case mode == networkingv1.ClientTLSSettings_ISTIO_MUTUAL:
		return closed(problem.Required, "mode", "ISTIO_MUTUAL wants a certificate of the mesh, which the proxy does not have")
	case mode != networkingv1.ClientTLSSettings_SIMPLE && mode != networkingv1.ClientTLSSettings_MUTUAL:
		return closed(problem.NotSupported, "mode", mode.String()+" is not known")
	case p.TLS.GetCaCertCredentialName() != "" && c.Secrets:
		return closed(problem.NotSupported, "caCertCredentialName", "is not read: want caCertificates, or the authorities in the Secret of credentialName")
	case p.TLS.GetCredentialName() != "" && c.Secrets:
		return Originate, nil
	case p.TLS.GetCredentialName() != "" && c.OwnTLS:
		at := Within(p.TLSAt, "credentialName")
		return Plaintext, &model.Problem{Key: at.Key, Field: at.Field, Code: problem.NoEffect, Severity: problem.Warning,
			Message: "is for gateways, and for the sidecars of a rule with workloadSelector; sidecars pass on the application's own TLS as it is"}
	case p.TLS.GetCredentialName() != "":
		return closed(problem.Required, "credentialName", "is for gateways, and for the sidecars of a rule with workloadSelector; this rule has none")
	case mode == networkingv1.ClientTLSSettings_MUTUAL && (p.TLS.GetClientCertificate() == "" || p.TLS.GetPrivateKey() == ""):
		return closed(problem.Required, "", "MUTUAL wants clientCertificate and privateKey")
	}
	return Originate, nil
}
