package inject

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const withCanary = "sidecarInjectorWebhook:\n  canary: {revision: %s, percent: %d}\n"

func canarySettings(t *testing.T, revision string, percent int) *Settings {
	t.Helper()
	return settings(t, "sidecarInjectorWebhook:\n", fmt.Sprintf(withCanary, revision, percent))
}

// ofDeployment is a Pod of a Deployment, in namespace shop.
func ofDeployment(name, more string) string {
	return fmt.Sprintf(`
metadata:
  generateName: %[1]s-abc-
  labels: {app: %[1]s, pod-template-hash: abc%[2]s}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %[1]s-abc, uid: "1", controller: true}]
spec: {containers: [{name: app, image: web}]}`, name, more)
}

// asked returns the revision in an injected Pod's status, and the control plane's address of its proxy.
func asked(pod *corev1.Pod) string {
	sidecar := container(ProxyContainer, pod)
	config, _, _ := strings.Cut(envOf(sidecar, "PROXY_CONFIG"), ".istio-system")
	_, discovery, _ := strings.Cut(config, `"discoveryAddress":"`)
	host, _, _ := strings.Cut(envOf(sidecar, "CA_ADDR"), ".")
	_, status, _ := strings.Cut(pod.Annotations[statusAnnotation], `"revision":"`)
	revision, _, _ := strings.Cut(status, `"`)
	return words(revision, host, discovery)
}

// A percentage of the workloads uses the canary: the same ones at each injection, and at a larger percentage these and
// further ones.
func TestPercentageOfWorkloadsAsksTheCanary(t *testing.T) {
	const workloads = 400
	was := map[string]bool{}
	for _, percent := range []int{0, 5, 25, 60, 100} {
		s, moved := canarySettings(t, "next", percent), 0
		for i := range workloads {
			name := fmt.Sprint("web-", i)
			if s.Config.values.SidecarInjectorWebhook.Canary.selects("shop", Owner{Kind: "Deployment", Name: name}) {
				was[name] = true
				moved++
			} else if was[name] {
				t.Errorf("%s was moved at a smaller percentage than %d", name, percent)
			}
		}
		if off := moved*100/workloads - percent; off < -6 || off > 6 {
			t.Errorf("%d of %d workloads at %d %%", moved, workloads, percent)
		}
	}
	moved, stays := canarySettings(t, "next", 100), canarySettings(t, "next", 0)
	for _, c := range []struct {
		name, pod, want string
		settings        *Settings
	}{
		{"moved", ofDeployment("web", ""), "next istiod-next istiod-next", moved},
		{"not moved", ofDeployment("web", ""), "default istiod <absent>", stays},
		{"names a revision", ofDeployment("web", ", istio.io/rev: default"), "default istiod <absent>", moved},
	} {
		got := asked(injectedPod(t, c.settings, c.pod))
		if want := strings.ReplaceAll(c.want, "<absent>", ""); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
	moved.Mesh.DefaultConfig.DiscoveryAddress = "elsewhere.example:15012" // not the address of the canary
	if got := asked(injectedPod(t, moved, ofDeployment("web", ""))); !strings.HasPrefix(got, "default istiod ") {
		t.Errorf("with another control plane's address: %q", got)
	}
}

func TestCanaryIsChecked(t *testing.T) {
	whole := settings(t)
	for values, want := range map[string]string{"{revision: next, percent: 101}": "canary.percent: 101", "{revision: next, percent: -1}": "canary.percent: -1", "{percent: 1}": "canary.revision",
		"{revision: a/b, percent: 1}": "canary.revision", "{revision: next, percent: x}": "percent"} {
		_, err := ParseConfig(source, texts[whole.Config][0], strings.Replace(texts[whole.Config][1], "sidecarInjectorWebhook:\n", "sidecarInjectorWebhook:\n  canary: "+values+"\n", 1), nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), source) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}
