package traffic

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Discovery is the method by which Envoy finds the endpoints of a cluster.
type Discovery uint8

// The values of Discovery. All except Dynamic have Envoy's names.
const (
	EDS         Discovery = iota // the control plane sends the endpoints
	StrictDNS                    // one endpoint for each address to which an endpoint's name resolves
	LogicalDNS                   // one endpoint, at the address to which its name resolves when a connection is opened
	OriginalDst                  // the endpoint is the original destination of the connection
	Dynamic                      // the proxy resolves the name in each request for a wildcard host
)

// resolved maps the resolution of a service to a Discovery.
var resolved = map[model.Resolution]Discovery{
	model.Resolution_RESOLUTION_EDS: EDS, model.Resolution_RESOLUTION_NONE: OriginalDst, model.Resolution_RESOLUTION_DNS: StrictDNS,
	model.Resolution_RESOLUTION_DNS_ROUND_ROBIN: LogicalDNS, model.Resolution_RESOLUTION_DYNAMIC_DNS: Dynamic,
}

// DiscoveryByResolution returns the Discovery for a service's resolution. An unknown resolution yields EDS. The result
// holds for clients that do not choose the endpoint themselves. For other clients, see DiscoveryOf.
func DiscoveryByResolution(service *model.Service) Discovery {
	return resolved[service.Spec.GetResolution()]
}

// DiscoveryOf returns the Discovery of a service with a policy. The result is OriginalDst if the client chooses the
// endpoint itself and DiscoveryByResolution is not Dynamic. In all other cases it equals DiscoveryByResolution. The
// client chooses the endpoint of a Headless service. It also chooses the endpoint of a service with the balancer
// PASSTHROUGH, unless the policy has a consistent hash
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#LoadBalancerSettings-SimpleLB).
func DiscoveryOf(service *model.Service, p Policy) Discovery {
	hashes := p.Balancer.GetConsistentHash() != nil // a consistent hash has priority over a simple balancer
	chosen := Headless(service) || !hashes && p.Balancer.GetSimple() == networkingv1.LoadBalancerSettings_PASSTHROUGH
	if by := DiscoveryByResolution(service); by == Dynamic || !chosen {
		return by
	}
	return OriginalDst
}

// Headless reports whether a service is a headless Kubernetes service whose clients choose the Pod themselves. It is
// false for a service without RESOLUTION_EDS.
func Headless(service *model.Service) bool {
	return service.Spec.GetHeadless() && service.Key.Kind == model.KindService &&
		service.Spec.GetResolution() == model.Resolution_RESOLUTION_EDS
}

// TLS is the TLS mode of a cluster's connections.
type TLS uint8

// The modes of TLS. AutoEndpoints and AutoAll are for clusters without TLS settings in a rule (a DestinationRule).
const (
	Plaintext     TLS = iota // the proxy adds no TLS
	AutoEndpoints            // the mesh's mTLS to endpoints with tlsMode istio, plain text to other endpoints
	AutoAll                  // the mesh's mTLS to all endpoints, for clusters whose endpoints Envoy cannot distinguish
	Mutual                   // the mesh's mTLS, because a rule states it
	Originate                // TLS without the mesh's certificates, because a rule states it
	Closed                   // a rule states impossible TLS settings, so the cluster has no endpoints and nothing is sent
)

// Client contains the properties of a client's proxy that TLSOf reads.
type Client struct {
	Identity bool // the proxy has a certificate of the mesh
	Secrets  bool // the proxy may request the Secret of credentialName
	Foreign  bool // rule and proxy are in different namespaces; the rule must not use private keys of the proxy's Secrets
	OwnTLS   bool // the application sends TLS itself
	// ReadsFiles is true for a gateway whose Envoy, and not the agent, would read a file that the rule names.
	ReadsFiles bool
}

// TLSOf returns the TLS mode of a policy for a client. Without TLS settings, a client with Identity gets the mode in
// the parameter automatic, and other clients get Plaintext. With valid settings, the result is Plaintext for DISABLE,
// Mutual for ISTIO_MUTUAL, and Originate for SIMPLE and MUTUAL. In all these cases the problem is nil.
//
// In the following cases the mode is Closed, and the problem has the severity Error:
//
//   - ISTIO_MUTUAL for a client without Identity
//   - an unknown mode
//   - SIMPLE or MUTUAL for a client with Secrets, if credentialName or caCertCredentialName names the mesh certificate
//     or a secret of another SDS server
//   - MUTUAL with credentialName in a Foreign rule, for a client with Secrets
//   - SIMPLE or MUTUAL in a Foreign rule, for a client with ReadsFiles
//   - SIMPLE or MUTUAL with credentialName, for a client with neither Secrets nor OwnTLS
//   - MUTUAL without credentialName, if clientCertificate or privateKey is missing
//
// SIMPLE or MUTUAL with credentialName gives Plaintext for a client with OwnTLS but without Secrets. The problem has
// the severity Warning. The proxy forwards the application's bytes unchanged, as in istiod.
func TLSOf(p Policy, c Client, automatic TLS) (TLS, *model.Problem) {
	closed := func(code problem.Code, field, message string) (TLS, *model.Problem) {
		at := p.TLSAt
		if field != "" {
			at = Within(at, field)
		}
		return Closed, &model.Problem{Key: at.Key, Field: at.Field, Code: code,
			Severity: problem.Error, Message: message + "; the cluster is closed"}
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
		return closed(problem.Required, "mode", "ISTIO_MUTUAL requires a certificate of the mesh, which the proxy does not have")
	case mode != networkingv1.ClientTLSSettings_SIMPLE && mode != networkingv1.ClientTLSSettings_MUTUAL:
		return closed(problem.NotSupported, "mode", mode.String()+" is not known")
	case external(p.TLS.GetCredentialName()) && c.Secrets:
		return closed(problem.NotSupported, "credentialName", "has a form that is not served: want the name of a Secret")
	case external(p.TLS.GetCaCertCredentialName()) && c.Secrets:
		return closed(problem.NotSupported, "caCertCredentialName", "has a form that is not served: want a Secret, or configmap://NAMESPACE/NAME")
	case mode == networkingv1.ClientTLSSettings_MUTUAL && p.TLS.GetCredentialName() != "" && c.Secrets && c.Foreign:
		// The proxy may have received the key for another object, such as a Gateway. Envoy has only one Secret of each
		// name, so the rule could use this key.
		return closed(problem.NotAllowed, "credentialName",
			"the private key of a Secret is used for rules of the proxies' own namespace alone, and these proxies are of another one")
	case c.ReadsFiles && c.Foreign: // Envoy refuses a cluster if a file is missing or is not PEM
		return closed(problem.NotAllowed, "", "the gateway's agent does not serve these files, and Envoy reads files for rules of the "+
			"gateway's own namespace alone")
	case p.TLS.GetCredentialName() != "" && c.Secrets:
		return Originate, nil
	case p.TLS.GetCredentialName() != "" && c.OwnTLS:
		at := Within(p.TLSAt, "credentialName")
		return Plaintext, &model.Problem{Key: at.Key, Field: at.Field, Code: problem.NoEffect, Severity: problem.Warning,
			Message: "is for gateways, and for the sidecars of a rule with workloadSelector; other sidecars" +
				" forward the application's TLS unchanged"}
	case p.TLS.GetCredentialName() != "":
		return closed(problem.Required, "credentialName",
			"is for gateways, and for the sidecars of a rule with workloadSelector, which this rule does not have")
	case mode == networkingv1.ClientTLSSettings_MUTUAL && (p.TLS.GetClientCertificate() == "" || p.TLS.GetPrivateKey() == ""):
		return closed(problem.Required, "", "MUTUAL requires clientCertificate and privateKey")
	}
	return Originate, nil
}

// NamesFiles reports whether TLS settings name files at the proxy. The value "system" of caCertificates does not count.
func NamesFiles(tls *networkingv1.ClientTLSSettings) bool {
	ca := tls.GetCaCertificates()
	return tls.GetClientCertificate()+tls.GetPrivateKey()+tls.GetCaCrl() != "" || ca != "" && ca != "system"
}

// external reports whether a credential is the mesh certificate or a secret of another SDS server. All other
// credentials are Secrets or ConfigMaps.
func external(credential string) bool {
	return strings.HasPrefix(credential, model.BuiltInCredential) || strings.HasPrefix(credential, model.ExternalCredential)
}
