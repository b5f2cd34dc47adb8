package bypass

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestOf(t *testing.T) {
	const (
		redirects = `initContainers: [{name: istio-init, args: [redirect, -p, "15001", -u, "1337", -m, REDIRECT]}]`
		proxied   = redirects + `, containers: [{name: istio-proxy, securityContext: {runAsUser: 1337}}, `
	)
	for spec, want := range map[string]string{
		`{}`: "",
		`{` + proxied + `{name: app, securityContext: {runAsUser: 1337}}, {name: more, securityContext: {runAsUser: 1000}}]}`:                                                                                             "app user 1337",
		`{securityContext: {runAsUser: 1337}, ` + proxied + `{name: app}, {name: more, securityContext: {runAsUser: 1000}}]}`:                                                                                             "app user 1337",
		`{` + proxied + `{name: app, securityContext: {runAsGroup: 1337}}]}`:                                                                                                                                              "app group 1337",
		`{initContainers: [{name: istio-init, args: [-u, "1337", -g, "5000,6000"]}], containers: [{name: a, securityContext: {runAsGroup: 6000}}, {name: b, securityContext: {runAsGroup: 1337}}, {name: istio-proxy}]}`:  "a group 6000",
		`{initContainers: [{name: istio-validation, args: [-u, "4000"]}], containers: [{name: a, securityContext: {runAsUser: 4000}}, {name: b, securityContext: {runAsUser: 1337}}, {name: istio-proxy}]}`:               "a user 4000",
		`{initContainers: [{name: istio-init}, {name: istio-proxy, restartPolicy: Always}, {name: setup, securityContext: {runAsUser: 1337}}, {name: aside, restartPolicy: Always, securityContext: {runAsUser: 1337}}]}`: "aside user 1337",
		// Without redirection, as a gateway.
		`{containers: [{name: istio-proxy, image: proxyv2}, {name: app, securityContext: {runAsUser: 1337}}]}`: "",
		// Not injected yet.
		`{containers: [{name: app, securityContext: {runAsUser: 1337}}]}`:                    "app user 1337",
		`{hostNetwork: true, containers: [{name: app, securityContext: {runAsUser: 1337}}]}`: "",
		`{containers: [{name: istio-proxy, image: auto, securityContext: {runAsUser: 4000}}, {name: app, securityContext: {runAsUser: 4000}}, {name: more, securityContext: {runAsUser: 1337}}]}`: "app user 4000",
	} {
		var s Spec
		if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		got := ""
		for _, f := range Of(s) {
			got += f.Container + " " + f.Who
		}
		if got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
