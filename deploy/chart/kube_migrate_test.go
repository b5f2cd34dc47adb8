//go:build kube

package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/programs"
)

// Helm 3 and 4 accept the output of `navarchctl migrate values -o yaml` for values of istiod's chart, and the chart's
// objects contain the settings. The original values are refused, and values without an equivalent are named.
func TestKubeChartTakesIstiodsValues(t *testing.T) {
	t.Parallel()
	const theirs = "testdata/istiod-values.yaml"
	h := helm(t)
	if _, err := h.Run(t.Context(), "template", h.Dir, "-f", theirs); err == nil || !strings.Contains(err.Error(), "at '/traceSampling': "+istiods) {
		t.Errorf("as they were: %v", err)
	}
	var left bytes.Buffer
	migrate := exec.CommandContext(t.Context(), programs.For(t, "navarchctl"), "migrate", "values", "-f", theirs, "-o", "yaml")
	migrate.Stderr = &left
	written, err := migrate.Output()
	if !strings.HasSuffix(left.String(), "settings to decide: 1; not acted on: 3\n") {
		t.Fatalf("%v %s", err, left.String())
	}
	for _, name := range []string{"traceSampling", "PILOT_ENABLE_ANALYSIS", "PILOT_NOBODY_READS", "keepaliveInterval", "keepaliveMaxServerConnectionAge", "global.hub"} {
		if !strings.Contains(left.String(), " "+name+" ") {
			t.Errorf("%s is not named in\n%s", name, left.String())
		}
	}
	if n := strings.Count(left.String(), "\n"); n != 2+6+1 {
		t.Errorf("%d lines:\n%s", n, left.String())
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, written, 0o600); err != nil {
		t.Fatal(err)
	}
	h3, err := NewHelm3(t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h3.Run(t.Context(), "template", h3.Dir, "-f", file); err != nil {
		t.Errorf("Helm 3: %v\n%s", err, written)
	}
	text := template(t, "-f", file)
	saysIstiodsPod(t, text)
	saysIstiodsMesh(t, text)
}

// saysIstiodsPod checks the settings of istiod's process.
func saysIstiodsPod(t *testing.T, text string) {
	t.Helper()
	pod := podsOf(t, text)["Deployment istiod-canary"]
	if pod == nil {
		t.Fatal("there is no Deployment istiod-canary")
	}
	c := pod.Spec.Containers[0]
	for _, arg := range []string{"--log-level=default:debug", "--shutdown-duration=45s", "--write-webhook-configurations=false", "--trust-domain=corp.example", "--cluster-id=west", "--domain=corp.local"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("%s is not among %q", arg, c.Args)
		}
	}
	env := map[string]string{}
	for _, e := range c.Env {
		if env[e.Name] = e.Value; e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			env[e.Name] = e.ValueFrom.SecretKeyRef.Name
		}
	}
	for name, want := range map[string]string{"PILOT_PUSH_THROTTLE": "50", "PILOT_ENABLE_STATUS": "true", "OTEL_EXPORTER_OTLP_HEADERS": "collector", "TOKEN_AUDIENCES": "other"} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if !slices.Contains(c.VolumeMounts, corev1.VolumeMount{Name: "roots", MountPath: "/etc/roots", ReadOnly: true}) || pod.Spec.InitContainers[0].Name != "first" {
		t.Errorf("mounts %+v, init containers %+v", c.VolumeMounts, pod.Spec.InitContainers)
	}
	if pod.Annotations["example.com/a.b"] != "x" || pod.Labels["team"] != "mesh" || pod.Spec.PriorityClassName != "system-cluster-critical" || pod.Spec.Affinity == nil ||
		len(pod.Spec.Tolerations) != 1 || pod.Spec.NodeSelector["kubernetes.io/os"] != "linux" || c.ImagePullPolicy != corev1.PullAlways || c.Resources.Limits.Memory().String() != "4Gi" {
		t.Errorf("%+v", pod)
	}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{}
	object(t, text, "HorizontalPodAutoscaler", "istiod-canary", scaler)
	if s := scaler.Spec; *s.MinReplicas != 2 || s.MaxReplicas != 6 || *s.Metrics[0].ContainerResource.Target.AverageUtilization != 60 || s.Metrics[0].ContainerResource.Container != c.Name {
		t.Errorf("%+v", s)
	}
}

// saysIstiodsMesh checks the settings of the mesh, of injection and of the other objects.
func saysIstiodsMesh(t *testing.T, text string) {
	t.Helper()
	service, account := &corev1.Service{}, &corev1.ServiceAccount{}
	object(t, text, "Service", "istiod-canary", service)
	object(t, text, "ServiceAccount", "istiod-canary", account)
	if service.Annotations["example.com/balancer"] != "internal" || account.Annotations["example.com/role"] != "arn:mesh" || *service.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack {
		t.Errorf("%+v\n%+v", service, account)
	}
	if strings.Contains(text, "kind: NetworkPolicy") || !strings.Contains(text, "name: istio-revision-tag-prod") {
		t.Error("there are network policies, or no tag")
	}
	for name, wanted := range map[string][]string{
		"istio-canary": {"trustDomain: corp.example", "accessLogFile: /dev/stdout", "tracing: {}", "holdApplicationUntilProxyStarts: true", "fromRegistry: east"},
		"istio-sidecar-injector-canary": {"policy: disabled", "key: batch", "example.com/injected: \"yes\"", "mine: ", "- mine", "meshID: west-mesh", "network: network-1", "clusterName: west",
			"logLevel: info", "cpu: 50m", "includeIPRanges: \"\"", "aud: other", "level: default:info", "enabled: true", "imagePullPolicy: Always", "clusterDomain: corp.local"},
	} {
		config := &corev1.ConfigMap{}
		object(t, text, "ConfigMap", name, config)
		all := strings.Join([]string{config.Data["mesh"], config.Data["meshNetworks"], config.Data["config"], config.Data["values"]}, "\n")
		for _, one := range wanted {
			if !strings.Contains(all, one) {
				t.Errorf("ConfigMap %s does not say %s", name, one)
			}
		}
	}
}
