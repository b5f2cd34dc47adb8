package inject

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// An annotation that is wrong refuses the Pod, with its name and its value.
func TestAnnotationsAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"sidecar.istio.io/proxyCPU", "much"}, {"sidecar.istio.io/proxyCPULimit", "-1"}, {"sidecar.istio.io/proxyMemory", "1 Gi"}, {"sidecar.istio.io/proxyMemoryLimit", "1GiB"},
		{"sidecar.istio.io/userVolume", `{"a": 5}`}, {"sidecar.istio.io/userVolume", `{"a": null}`}, {"sidecar.istio.io/userVolume", `["a"]`}, {"sidecar.istio.io/userVolume", "5"},
		{"sidecar.istio.io/userVolumeMount", `{"a": {"mountPath": 5}}`}, {"sidecar.istio.io/userVolumeMount", "x"},
		{"traffic.sidecar.istio.io/excludeInterfaces", "eth0 -j ACCEPT"}, {"traffic.sidecar.istio.io/kubevirtInterfaces", "net1,/etc"},
		{"istio.io/reroute-virtual-interfaces", "eth0;x"}, {"istio.io/reroute-virtual-interfaces", "a-name-of-16-chars"},
		{"traffic.sidecar.istio.io/excludeOutboundIPRanges", "::ffff:10.0.0.0/104"},
		{"prometheus.istio.io/scrape-targets", "15000"},
	} {
		pod := podOf(t, annotated(""))
		pod.Annotations = map[string]string{c.name: c.value}
		_, err := settings(t).Inject(t.Context(), Request{Pod: pod, Namespace: "shop"})
		if err == nil || !strings.HasPrefix(err.Error(), "annotation "+c.name+": ") || !strings.Contains(strings.ReplaceAll(err.Error(), `\`, ""), c.value) {
			t.Errorf("%s %s: %v", c.name, c.value, err)
		}
	}
	for _, c := range []struct{ config, want string }{
		{"discoveryAddress: istiod", `discoveryAddress "istiod": want HOST:PORT`}, {"discoveryAddress: 'istiod: 15012'", `discoveryAddress "istiod: 15012": want HOST:PORT`}, {"discoveryAddress: 'istiod:x'", `discoveryAddress "istiod:x": want HOST:PORT`},
		{"statusPort: 70000", "statusPort 70000"}, {"proxyAdminPort: -1", "proxyAdminPort -1"}, {"concurrency: -2", "concurrency -2"}, {"drainDuration: -1s", "drainDuration -1s"},
	} {
		pod := podOf(t, annotated(""))
		pod.Annotations = map[string]string{"proxy.istio.io/config": c.config}
		if _, err := settings(t).Inject(t.Context(), Request{Pod: pod, Namespace: "shop"}); err == nil || !strings.HasPrefix(err.Error(), "annotation proxy.istio.io/config: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.config, err)
		}
	}
}

// Webhook and command report the doubtful settings of an injected Pod to its author.
func TestWarnings(t *testing.T) {
	const apart = "\nspec: {containers: [{name: app, image: x}]}"
	for name, c := range map[string]struct{ pod, want string }{
		"nothing":                {"metadata: {name: p}" + apart, ""},
		"log level":              {"metadata: {name: p, annotations: {sidecar.istio.io/logLevel: verbose}}" + apart, `annotation sidecar.istio.io/logLevel: Envoy has no log level "verbose"`},
		"its levels":             {"metadata: {name: p, annotations: {sidecar.istio.io/logLevel: warn, sidecar.istio.io/componentLogLevel: 'misc:error,rbac:debug'}}" + apart, ""},
		"of components":          {"metadata: {name: p, annotations: {sidecar.istio.io/componentLogLevel: 'rbac:loud'}}" + apart, `annotation sidecar.istio.io/componentLogLevel: "rbac:loud"`},
		"unknown field":          {"metadata: {name: p, annotations: {proxy.istio.io/config: 'holdApplicationUntilProxyStart: true'}}" + apart, "metadata.annotations[proxy.istio.io/config].holdApplicationUntilProxyStart: unknown field"},
		"no port of metrics":     {"metadata: {name: p, annotations: {prometheus.io/port: http}}" + apart, `annotation prometheus.io/port: "http" is no port`},
		"neither true nor false": {"metadata: {name: p, labels: {sidecar.istio.io/inject: 'False'}, annotations: {sidecar.istio.io/inject: 'true'}}" + apart, `label sidecar.istio.io/inject: "False" is ignored: want true or false`},
		"an empty label":         {"metadata: {name: p, labels: {sidecar.istio.io/inject: ''}, annotations: {sidecar.istio.io/inject: 'no'}}" + apart, ""},
		"unknown value":          {"metadata: {name: p, annotations: {proxy.istio.io/config: 'interceptionMode: ALL'}}" + apart, `metadata.annotations[proxy.istio.io/config].interceptionMode: unknown value "ALL"`},
		"unknown name":           {"metadata: {name: p, annotations: {sidecar.istio.io/proxyCpu: 1m}}" + apart, "metadata.annotations[sidecar.istio.io/proxyCpu]: Istio has no annotation of this name [IST0108]"},
		"a proxy's user": {"metadata: {name: p}\nspec: {containers: [{name: app, image: x, securityContext: {runAsUser: 1337}}]}",
			"container app runs as user 1337, which is the proxy's"},
		"the Pod's user": {"metadata: {name: p}\nspec: {securityContext: {runAsUser: 1337}, containers: [{name: app, image: x}]}", "container app runs as user 1337, which is the proxy's"},
		"a group": {"metadata: {name: p, annotations: {sidecar.istio.io/interceptionMode: TPROXY}}\nspec: {containers: [{name: app, image: x, securityContext: {runAsGroup: 5000}}, {name: istio-proxy, image: auto, securityContext: {runAsGroup: 5000}}]}",
			"container app runs as group 5000, which is the proxy's"},
		"an own user":          {"metadata: {name: p}\nspec: {containers: [{name: app, image: x, securityContext: {runAsUser: 1000}}, {name: istio-proxy, image: auto, securityContext: {runAsUser: 5000}}]}", ""},
		"an own user of one":   {"metadata: {name: p}\nspec: {containers: [{name: app, image: x, securityContext: {runAsUser: 5000}}, {name: more, image: x}, {name: istio-proxy, image: auto, securityContext: {runAsUser: 5000}}]}", "container app runs as user 5000, which is the proxy's"},
		"everybody's user":     {"metadata: {name: p}\nspec: {containers: [{name: istio-proxy, image: auto, securityContext: {runAsUser: 1000680000}}, {name: app, image: x, securityContext: {runAsUser: 1000680000}}]}", "container istio-proxy: user 1000680000 is that of all containers"},
		"nobody is redirected": {"metadata: {name: p, annotations: {sidecar.istio.io/interceptionMode: NONE}}\nspec: {containers: [{name: app, image: x, securityContext: {runAsUser: 1337}}]}", ""},
	} {
		for _, native := range []bool{false, true} {
			h := NewHandler(model.MeshDefaults, func(string, string) bool { return native }, nil)
			h.Use(settings(t))
			raw := encoded(t, podOf(t, c.pod))
			answer := h.Admit(t.Context(), "/inject", review(raw))
			said := strings.Join(answer.Warnings, " ")
			if !answer.Allowed || said != "" && c.want == "" || !strings.HasPrefix(said, c.want) {
				t.Errorf("%s, native %t: %v %q, want %q", name, native, answer.Result, said, c.want)
				continue
			}
			if again := h.Admit(t.Context(), "/inject", review(apply(t, raw, answer.Patch))); again.Patch != nil {
				t.Errorf("%s, native %t: injected again %s", name, native, again.Patch)
			}
			_, notes, err := settings(t).Document([]byte("apiVersion: v1\nkind: Pod\n"+c.pod), native)
			if err != nil || len(notes) != len(answer.Warnings) {
				t.Errorf("%s, native %t: %v, %q", name, native, err, notes)
			}
		}
	}
}

// If a cluster sets one user for all containers, the proxy has the template's user, so that redirection distinguishes
// its traffic from the application's.
func TestUserOfAllContainers(t *testing.T) {
	pod := injectedPod(t, settings(t), "metadata: {name: p}\nspec: {containers: [{name: istio-proxy, image: auto, securityContext: {runAsUser: 1000680000, runAsGroup: 0}}, {name: app, image: x, securityContext: {runAsUser: 1000680000}}]}")
	c := nth(t, pod, ProxyContainer).SecurityContext
	args := nth(t, pod, initContainer).Args
	if got := words(*c.RunAsUser, *c.RunAsGroup, args[slices.Index(args, "-u")+1]); got != "1337 1337 1337" {
		t.Errorf("proxy's user and group, and the user that redirection lets pass: %s", got)
	}
}
