package cluster

import (
	"fmt"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// The secrets that a proxy asks for by credentialName and caCertCredentialName. One that may not ask for them reads
// the files of the rule.
func TestCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"mode: SIMPLE, credentialName: c":                                                       "[] kubernetes://c-cacert",
		"mode: MUTUAL, credentialName: c":                                                       "[kubernetes://c] kubernetes://c-cacert",
		"mode: MUTUAL, credentialName: 'kubernetes://c'":                                        "[kubernetes://c] kubernetes://c-cacert",
		"mode: MUTUAL, credentialName: c, caCertCredentialName: m-cacert":                       "[kubernetes://c] kubernetes://m-cacert",
		"mode: MUTUAL, credentialName: c, caCertCredentialName: 'configmap://n/m'":              "[kubernetes://c] configmap://n/m",
		"mode: SIMPLE, caCertCredentialName: 'configmap://n/m'":                                 "[] configmap://n/m",
		"mode: SIMPLE, credentialName: 'configmap://n/m'":                                       "[] configmap://n/m-cacert",
		"mode: MUTUAL, credentialName: 'configmap://n/m'":                                       "[invalid://configmap://n/m] configmap://n/m-cacert",
		"mode: SIMPLE, credentialName: c, insecureSkipVerify: true":                             "[] ",
		"mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertCredentialName: 'm-cacert'": "[file-cert:/c~/k] kubernetes://m-cacert",
	} {
		s := outbound(t, "PROTOCOL_HTTP", "", "{tls: {"+text+"}}")
		s.Rule = rule(t, "reviews", "{host: reviews, workloadSelector: {matchLabels: {a: b}}, trafficPolicy: {tls: {"+text+"}}}")
		s.Caps = xds.CapFileSecrets
		_, c := build(t, s)
		tls := &tlsv3.UpstreamTlsContext{}
		if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(tls); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		own := []string{}
		for _, one := range tls.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
			own = append(own, one.GetName())
		}
		trust := tls.GetCommonTlsContext().GetCombinedValidationContext().GetValidationContextSdsSecretConfig().GetName()
		if got := fmt.Sprintf("%v %s", own, trust); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
