package describe

import (
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// A server without TLS states no mode of TLS: PASSTHROUGH is the default, also beside httpsRedirect.
func TestModesOfServers(t *testing.T) {
	for _, c := range []struct {
		protocol string
		tls      *networkingv1.ServerTLSSettings
		want     string
	}{
		{"HTTP", nil, "port 80 HTTP, hosts a.test"},
		{"HTTP", &networkingv1.ServerTLSSettings{HttpsRedirect: true}, "port 80 HTTP, hosts a.test, redirects to https"},
		{"http2", &networkingv1.ServerTLSSettings{HttpsRedirect: true}, "port 80 http2, hosts a.test, redirects to https"},
		{"TLS", &networkingv1.ServerTLSSettings{}, "port 80 TLS, hosts a.test, TLS PASSTHROUGH"},
		{"https", &networkingv1.ServerTLSSettings{}, "port 80 https, hosts a.test, TLS PASSTHROUGH"},
		{"HTTPS", &networkingv1.ServerTLSSettings{Mode: networkingv1.ServerTLSSettings_SIMPLE, CredentialName: "c"}, "port 80 HTTPS, hosts a.test, TLS SIMPLE with c"},
	} {
		o := gatewayObject(&model.Gateway{Spec: &networkingv1.Gateway{Servers: []*networkingv1.Server{{
			Port: &networkingv1.Port{Number: 80, Protocol: c.protocol}, Hosts: []string{"a.test"}, Tls: c.tls}}}})
		if got := o.Facts[len(o.Facts)-1].Text; got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
