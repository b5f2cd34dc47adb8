package listener

import (
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
)

// Each value of an enum of ProxyConfig maps to Envoy's value of the same name, except values that keep Envoy's default.
func TestValuesOfProxyConfig(t *testing.T) {
	same := func(istios, envoys string) {
		t.Helper()
		if istios != envoys {
			t.Errorf("%s is %s", istios, envoys)
		}
	}
	for n, name := range meshv1.ForwardClientCertDetails_name {
		if name == "UNDEFINED" { // Istio's default
			name = "APPEND_FORWARD"
		}
		same(name, forwardings[meshv1.ForwardClientCertDetails(n)].String())
	}
	for n, name := range meshv1.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction_name {
		action, stated := underscores[meshv1.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction(n)]
		name = strings.TrimPrefix(name, "HEADERS_WITH_UNDERSCORES_")
		if !stated && n != 0 && name != "ALLOW" {
			t.Errorf("%s is not known", name)
		}
		if stated || name == "ALLOW" {
			same(name, action.String())
		}
	}
	for n, name := range meshv1.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction_name {
		if action, stated := escapedSlashes[meshv1.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction(n)]; stated || n != 0 {
			same(name, action.String())
		}
	}
}
