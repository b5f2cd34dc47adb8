package inject

import (
	"slices"
	"strings"
	"testing"
)

// The agent is told the domain of the cluster's Services where it is not the usual one.
func TestClusterDomain(t *testing.T) {
	for _, template := range []string{"sidecar", "gateway"} {
		for domain, want := range map[string]bool{"cluster.local": false, "example.org": true} {
			pod := injectedPod(t, settings(t, "clusterDomain: cluster.local", "clusterDomain: "+domain), annotated("inject.istio.io/templates: "+template))
			if args := container(ProxyContainer, pod).Args; slices.Contains(args, "--domain=$(POD_NAMESPACE).svc."+domain) != want {
				t.Errorf("%s, %s: %q", template, domain, args)
			}
		}
	}
}

// With TPROXY the proxy is root whatever its author says, and redirection leaves alone what it sends by its group: the usual one, or the author's.
func TestOwnUserWithTPROXY(t *testing.T) {
	for own, want := range map[string]string{"runAsUser: 4000": "0 1337 -u 1337", "runAsUser: 4000, runAsGroup: 5000": "0 5000 -u 1337 -g 5000"} {
		pod := injectedPod(t, settings(t), "metadata: {name: web-0, annotations: {sidecar.istio.io/interceptionMode: TPROXY}}\nspec: {containers: [{name: istio-proxy, image: auto, securityContext: {"+own+"}}, {name: app, image: web}]}")
		c := nth(t, pod, ProxyContainer).SecurityContext
		args := strings.Join(nth(t, pod, initContainer).Args, " ")
		_, who, _ := strings.Cut(args[:strings.Index(args, " -m ")], " -z 15006 ")
		if got := words(*c.RunAsUser, *c.RunAsGroup, who); got != want {
			t.Errorf("%s: %s, want %s", own, got, want)
		}
	}
}

// The label for the workload's name counts before its owner's, and Istio's agents find revocation lists where they look for them.
func TestWhatAgentsAreGiven(t *testing.T) {
	for _, template := range []string{"sidecar", "gateway"} {
		pod := podOf(t, annotated("inject.istio.io/templates: "+template))
		pod.Labels["service.istio.io/workload-name"] = "named"
		for agent, want := range map[string]string{"navarch": "named", "istio": "named istio-ca-crl /var/run/secrets/istio/crl"} {
			out := injectTwice(t, settings(t, "agent: navarch", "agent: "+agent), Request{Pod: pod, Namespace: "shop"})
			proxy := nth(t, out, ProxyContainer)
			got := envOf(proxy, "ISTIO_META_WORKLOAD_NAME")
			for _, v := range out.Spec.Volumes {
				if v.ConfigMap != nil && v.ConfigMap.Name == "istio-ca-crl" && *v.ConfigMap.Optional {
					got += " " + v.Name
				}
			}
			for _, m := range proxy.VolumeMounts {
				if m.Name == "istio-ca-crl" {
					got += " " + m.MountPath
				}
			}
			if got != want {
				t.Errorf("%s for %s: %s, want %s", template, agent, got, want)
			}
		}
	}
}
