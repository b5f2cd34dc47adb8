package inject

import (
	"slices"
	"strings"
	"testing"
)

// The agent receives the domain of the cluster's Services if it is not the default.
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

// With TPROXY the proxy runs as root whatever its author states, and redirection exempts traffic of its group: the
// default one or the author's.
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

// The label with the workload's name precedes its owner's name, and Istio's agents find revocation lists at their path.
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

// Istio's agents are handed the policy of compliance; navarch-agent, which acts on none, is not.
func TestCompliancePolicy(t *testing.T) {
	for _, c := range []struct{ agent, policy, want string }{
		{"istio", "fips-140-3", "fips-140-3 fips140=only"}, {"istio", "fips-140-2", "fips-140-2 " + absentValue}, {"istio", "", absentValue + " " + absentValue},
		{"navarch", "fips-140-3", absentValue + " " + absentValue},
	} {
		for _, template := range []string{"sidecar", "gateway", "grpc-agent"} {
			if template == "grpc-agent" && c.agent == "navarch" {
				continue
			}
			s := settings(t, "agent: navarch", "agent: "+c.agent)
			s.Config.compliance = c.policy
			proxy := nth(t, injectedPod(t, s, annotated("inject.istio.io/templates: "+template)), ProxyContainer)
			if got := words(envOf(proxy, "COMPLIANCE_POLICY"), envOf(proxy, "GODEBUG")); got != c.want {
				t.Errorf("%+v, %s: %s", c, template, got)
			}
		}
	}
}

// A canonical name that is cut off at 63 letters ends in a letter or a digit, as Kubernetes wants of labels.
func TestCanonicalNames(t *testing.T) {
	for _, ending := range []string{".", "_", "-", "--", ".-_"} {
		name := strings.Repeat("a", 63-len(ending))
		for _, template := range []string{"sidecar", "gateway", "grpc-agent"} {
			pod := podOf(t, annotated("inject.istio.io/templates: "+template))
			pod.Labels, pod.Name = nil, name+ending+"v2"
			out := injectTwice(t, settings(t, "agent: navarch", "agent: istio"), Request{Pod: pod, Namespace: "shop"})
			if got := out.Labels["service.istio.io/canonical-name"]; got != name {
				t.Errorf("%s of %s: %s", template, pod.Name, got)
			}
		}
	}
}
