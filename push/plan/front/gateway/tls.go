package gateway

import (
	"fmt"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mostCertificates is the maximum number of certificates of a server, one for each type of key.
const mostCertificates = 2

var (
	texts   intern.Table[string]
	secrets intern.Table[listener.Secret]
)

// serverTLS returns the settings of the TLS that a server terminates. They are zero for modes PASSTHROUGH and
// AUTO_PASSTHROUGH, whose TLS the server does not terminate. A credential takes precedence over files. The function
// serves returns the cluster of the SDS server for an external secret. Its argument is the part of the secret's name
// after sds://. If the cluster is "", proxies request the secret from the control plane, which answers that the secret
// does not exist.
func serverTLS(s *networkingv1.Server, mesh *meshv1.MeshConfig, serves func(name string) (cluster string)) listener.ServerTLS {
	tls := s.GetTls()
	switch tls.GetMode() {
	case networkingv1.ServerTLSSettings_PASSTHROUGH, networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH:
		return listener.ServerTLS{}
	}
	out := input.ServerTLS(tls, mesh)
	if len(tls.GetEcdhCurves()) > 0 {
		out.Curves = texts.List(tls.GetEcdhCurves()...)
	}
	out.ALPN = texts.List(tls.GetAlpnProtocols()...)
	clients := tls.GetMode() != networkingv1.ServerTLSSettings_SIMPLE
	if clients {
		out.Clients = texts.List(tls.GetSubjectAltNames()...)
	}
	if tls.GetMode() == networkingv1.ServerTLSSettings_ISTIO_MUTUAL {
		return out
	}
	names := tls.GetCredentialNames()
	if len(names) == 0 && tls.GetCredentialName() != "" {
		names = []string{tls.GetCredentialName()}
	}
	if len(names) > 0 {
		var own []listener.Secret
		for _, name := range names[:min(len(names), mostCertificates)] {
			if strings.HasPrefix(name, model.ConfigMapCredential) { // a ConfigMap has no private key
				own = append(own, listener.Secret{Name: model.PairResource(name)})
				continue
			}
			own = append(own, secretOf(name, name, serves))
		}
		out.Secrets = secrets.List(own...)
	} else {
		setFiles(&out, tls)
	}
	if !clients {
		return out
	}
	out.Keys, out.Hashes = texts.List(tls.GetVerifyCertificateSpki()...), texts.List(tls.GetVerifyCertificateHash()...)
	out.Unverified = tls.GetInsecureSkipVerify().GetValue()
	switch {
	case tls.GetCaCertCredentialName() != "":
		out.Trust = secretOf(tls.GetCaCertCredentialName(), tls.GetCaCertCredentialName(), serves)
	case len(names) > 0:
		out.Trust = secretOf(names[0], names[0]+model.AuthoritiesSuffix, serves)
	default:
		out.Authorities, out.Revoked = tls.GetCaCertificates(), tls.GetCaCrl()
	}
	return out
}

// foreignSecrets returns a problem for each credential of a server that names a Secret outside of the router's
// namespace. The control plane sends a Secret only to proxies of the Secret's namespace (push/access), so TLS
// handshakes with such a credential fail.
func foreignSecrets(of gateways.Server, namespace string) (found []input.Problem) {
	note := func(field, name string) {
		ref, ok := access.ParseName(name)
		if !ok || ref.Namespace == "" || ref.Namespace == namespace {
			return
		}
		found = append(found, input.Problem{Key: of.Gateway.Key, Field: fmt.Sprintf("spec.servers[%d].tls.%s", of.Index, field),
			Code: problem.NotAllowed, Severity: problem.Error, Message: fmt.Sprintf("%s belongs to namespace %s, and gateways of namespace "+
				"%s get only Secrets of their own namespace; TLS handshakes with it fail", name, ref.Namespace, namespace)})
	}
	tls := of.Spec().GetTls()
	note("credentialName", tls.GetCredentialName())
	for i, name := range tls.GetCredentialNames() {
		note(fmt.Sprintf("credentialNames[%d]", i), name)
	}
	if tls.GetMode() != networkingv1.ServerTLSSettings_SIMPLE {
		note("caCertCredentialName", tls.GetCaCertCredentialName())
	}
	return found
}

// setFiles sets the certificates of a server that are files of the proxy.
func setFiles(out *listener.ServerTLS, tls *networkingv1.ServerTLSSettings) {
	out.Certificate, out.Key = tls.GetServerCertificate(), tls.GetPrivateKey()
	for i, pair := range tls.GetTlsCertificates() {
		switch i {
		case 0:
			out.Certificate, out.Key = pair.GetServerCertificate(), pair.GetPrivateKey()
		case 1:
			out.Certificate2, out.Key2 = pair.GetServerCertificate(), pair.GetPrivateKey()
		}
	}
}

// secretOf returns the secret for a credential. The parameter name is the name of the credential. The parameter
// resource is the same name. For the certificates of authorities it may also be that name with a suffix.
func secretOf(name, resource string, serves func(string) string) listener.Secret {
	if name == model.BuiltInCredential {
		if resource != name {
			return listener.Secret{Name: xds.SDSRoot, Cluster: xds.SDSCluster}
		}
		return listener.Secret{Name: xds.SDSDefault, Cluster: xds.SDSCluster}
	}
	if of, is := strings.CutPrefix(name, model.ExternalCredential); is {
		return listener.Secret{Name: resource, Cluster: serves(of)}
	}
	return listener.Secret{Name: model.SecretResource(resource)}
}
