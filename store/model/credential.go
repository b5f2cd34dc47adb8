package model

import "strings"

// The forms of names of credentials in Gateways, rules and EnvoyFilters, beside the name of a Secret alone
// (istio: pilot/pkg/model/credentials/resource.go).
const (
	SecretCredential        = "kubernetes://"         // before NAME or NAMESPACE/NAME of a Secret
	GatewaySecretCredential = "kubernetes-gateway://" // before NAMESPACE/NAME of a Secret
	ConfigMapCredential     = "configmap://"          // before NAMESPACE/NAME of a ConfigMap with certificates of authorities
	NobodyCredential        = "invalid://"            // nobody serves it: who asks for it opens and takes no connection
	ExternalCredential      = "sds://"                // before the name of a secret of an SDS server beside the mesh
	BuiltInCredential       = "builtin://"            // the certificate of the mesh
)

// AuthoritiesSuffix ends the name of the secret with the authorities of a Secret, by which peers are verified.
const AuthoritiesSuffix = "-cacert"

// SecretResource returns the name of the xDS secret for a credential, of its pair or, with AuthoritiesSuffix, of its
// authorities. Names with a known form are resources as they are written.
func SecretResource(credential string) string {
	for _, form := range []string{SecretCredential, GatewaySecretCredential, ConfigMapCredential, NobodyCredential, ExternalCredential} {
		if strings.HasPrefix(credential, form) {
			return credential
		}
	}
	return SecretCredential + credential
}

// PairResource is SecretResource of the certificate with private key of a credential. A ConfigMap has no private key,
// so nobody serves the name.
func PairResource(credential string) string {
	if strings.HasPrefix(credential, ConfigMapCredential) {
		return NobodyCredential + credential
	}
	return SecretResource(credential)
}

// ConfigMapOf returns the namespace and the name of the ConfigMap that a credential names. is reports whether the
// credential has the form of a ConfigMap; a malformed one has an empty namespace and name.
func ConfigMapOf(credential string) (namespace, name string, is bool) {
	rest, is := strings.CutPrefix(credential, ConfigMapCredential)
	namespace, name, _ = strings.Cut(rest, "/")
	if !is || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", is
	}
	return namespace, name, true
}
