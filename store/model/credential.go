package model

import "strings"

// The forms of names of credentials in Gateways, rules and EnvoyFilters, besides the name of a Secret alone (istio:
// pilot/pkg/model/credentials/resource.go). All but BuiltInCredential are prefixes.
const (
	SecretCredential        = "kubernetes://"         // before NAME or NAMESPACE/NAME of a Secret
	GatewaySecretCredential = "kubernetes-gateway://" // before NAMESPACE/NAME of a Secret
	ConfigMapCredential     = "configmap://"          // before NAMESPACE/NAME of a ConfigMap with certificates of authorities
	NobodyCredential        = "invalid://"            // before any text: a secret that no server has, so listeners and clusters with it stay closed
	ExternalCredential      = "sds://"                // before the name of a secret of an SDS server outside the control plane
	BuiltInCredential       = "builtin://"            // the whole credential: the proxy's certificate of the mesh
)

// AuthoritiesSuffix is the suffix in the name of an xDS secret that has the CA certificates of a Secret. Proxies verify
// peers with these certificates.
const AuthoritiesSuffix = "-cacert"

// SecretResource returns the name of the xDS secret for a credential. A credential with one of the prefixes above is
// returned unchanged. Any other credential is the name of a Secret and gets the prefix SecretCredential. The credential
// may end in AuthoritiesSuffix. Callers must handle BuiltInCredential before, since it is not a secret of the control
// plane.
func SecretResource(credential string) string {
	for _, form := range []string{SecretCredential, GatewaySecretCredential, ConfigMapCredential, NobodyCredential, ExternalCredential} {
		if strings.HasPrefix(credential, form) {
			return credential
		}
	}
	return SecretCredential + credential
}

// NamesSecret reports whether the name of an xDS secret has a prefix of names of Secrets: SecretCredential or
// GatewaySecretCredential.
func NamesSecret(resource string) bool {
	return strings.HasPrefix(resource, SecretCredential) || strings.HasPrefix(resource, GatewaySecretCredential)
}

// PairResource returns the name of the xDS secret with the certificate and private key of a credential. A ConfigMap
// has no private key, so the name for a ConfigMap begins with NobodyCredential. For other credentials the result is
// that of SecretResource.
func PairResource(credential string) string {
	if strings.HasPrefix(credential, ConfigMapCredential) {
		return NobodyCredential + credential
	}
	return SecretResource(credential)
}

// ConfigMapOf returns the namespace and the name of the ConfigMap that a credential names. The last result reports
// whether the credential has the prefix ConfigMapCredential. The form after the prefix is NAMESPACE/NAME. If it has
// another form, namespace and name are empty.
func ConfigMapOf(credential string) (namespace, name string, is bool) {
	rest, is := strings.CutPrefix(credential, ConfigMapCredential)
	namespace, name, _ = strings.Cut(rest, "/")
	if !is || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", is
	}
	return namespace, name, true
}
