//go:build kube

package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/admit/inject"
)

// The webhooks of injection are those that `navarchctl injection-webhook` prints for the revision and for each tag.
func TestKubeChartInjectionWebhooks(t *testing.T) {
	t.Parallel()
	for scene, all := range map[string][]inject.Webhooks{
		"default": {{Namespace: "istio-system"}},
		"apart": {{Namespace: "istio-system", Revision: "canary", Everywhere: true, Path: "/inject/cluster/west/net/network-2"},
			{Namespace: "istio-system", Revision: "canary", Tag: "prod", Everywhere: true, Path: "/inject/cluster/west/net/network-2"},
			{Namespace: "istio-system", Revision: "canary", Tag: "default", Everywhere: true, Path: "/inject/cluster/west/net/network-2"}},
	} {
		text := scenes(t)[scene]
		for _, w := range all {
			want, got := w.Configuration(), &admissionregistrationv1.MutatingWebhookConfiguration{}
			object(t, text, want.Kind, want.Name, got)
			if !reflect.DeepEqual(got.Webhooks, want.Webhooks) {
				g, _ := yaml.Marshal(got.Webhooks) // both are for who reads the failure
				w, _ := yaml.Marshal(want.Webhooks)
				t.Errorf("%s: %s:\n%s\nwant\n%s", scene, want.Name, g, w)
			}
			for label, value := range want.Labels {
				if got.Labels[label] != value {
					t.Errorf("%s: %s: label %s is %q, want %q", scene, want.Name, label, got.Labels[label], value)
				}
			}
		}
		if n := strings.Count(text, "kind: MutatingWebhookConfiguration"); n != len(all) {
			t.Errorf("%s: %d configurations, want %d", scene, n, len(all))
		}
	}
}

// The webhooks of validation are the documented ones, which navarchd is tested with (cmd/internal/e2e). None has a
// caBundle.
func TestKubeChartValidationWebhooks(t *testing.T) {
	t.Parallel()
	page, text := docs.YAML(t, "validation.md", "# "), scenes(t)["default"]
	port := int32(443)
	for _, u := range objects(t, page) {
		want, got := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
		object(t, page, u.GetKind(), u.GetName(), want)
		object(t, text, u.GetKind(), u.GetName(), got)
		for i := range want.Webhooks {
			want.Webhooks[i].ClientConfig.Service.Port = &port // the default
		}
		if !reflect.DeepEqual(got.Webhooks, want.Webhooks) {
			t.Errorf("%s:\n%+v\nwant\n%+v", u.GetName(), got.Webhooks, want.Webhooks)
		}
		for label, value := range want.Labels {
			if got.Labels[label] != value {
				t.Errorf("%s: label %s is %q, want %q", u.GetName(), label, got.Labels[label], value)
			}
		}
	}
	for name, text := range scenes(t) {
		if set, own := strings.Contains(text, "caBundle:"), name != "signers" && name != "issuer"; set == own {
			t.Errorf("%s: caBundle is set: %v; it is navarchd's, where the certificate is one of its own CA", name, set)
		}
	}
}

// The injector's ConfigMap contains the files of the repository, with the settings that the values determine.
func TestKubeChartInjector(t *testing.T) {
	t.Parallel()
	all := scenes(t)
	read := func(scene, name string) (config, values map[string]any) {
		t.Helper()
		m := &corev1.ConfigMap{}
		object(t, all[scene], "ConfigMap", name, m)
		for key, into := range map[string]*map[string]any{"config": &config, "values": &values} {
			if err := yaml.Unmarshal([]byte(m.Data[key]), into); err != nil {
				t.Fatal(err)
			}
		}
		return config, values
	}
	config, values := read("default", "istio-sidecar-injector")
	var wantConfig, wantValues map[string]any
	for text, into := range map[string]*map[string]any{injection.Config(): &wantConfig, injection.Values(): &wantValues} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	trimmed := func(of map[string]any) map[string]string {
		out := map[string]string{}
		for name, text := range of["templates"].(map[string]any) {
			out[name] = strings.TrimSpace(text.(string))
		}
		return out
	}
	if !maps.Equal(trimmed(config), trimmed(wantConfig)) {
		t.Error("the templates are not those of files/injection")
	}
	delete(config, "templates")
	delete(wantConfig, "templates")
	if !reflect.DeepEqual(config, wantConfig) {
		t.Errorf("config %v, want %v", config, wantConfig)
	}
	wantValues["global"].(map[string]any)["trustDomain"] = "cluster.local"
	if !reflect.DeepEqual(values, wantValues) {
		t.Errorf("values %v\nwant %v", values, wantValues)
	}
	config, values = read("apart", "istio-sidecar-injector-canary")
	global := values["global"].(map[string]any)
	proxy := global["proxy"].(map[string]any)
	if global["caAddress"] != "istiod-canary-ca.istio-system.svc:15012" || values["revision"] != "canary" || proxy["logLevel"] != "info" || proxy["statusPort"] == nil {
		t.Errorf("values %v", values)
	}
	if trimmed(config)["mine"] == "" || trimmed(config)["sidecar"] == "" {
		t.Error("a template of the values is not there beside the others")
	}
}

// Each port of istiod is at the same Service, whichever Deployment serves it. A port is served by one Deployment only,
// except ports that all Deployments have.
func TestKubeChartServices(t *testing.T) {
	t.Parallel()
	for scene, want := range map[string]map[string]string{
		"default":  {"istiod:443": "istiod", "istiod:15012": "istiod", "istiod:15014": "istiod"},
		"external": {"istiod:443": "istiod-admit", "istiod:15012": "istiod", "istiod:15014": "istiod istiod-admit istiod-ingest"},
		"apart": {"istiod-canary:443": "istiod-canary-admit", "istiod-canary:15010": "istiod-canary", "istiod-canary:15012": "istiod-canary", "istiod-canary-ca:15012": "istiod-canary-ca",
			"istiod-canary:15014": "istiod-canary istiod-canary-admit istiod-canary-ca istiod-canary-ingest"},
	} {
		text := scenes(t)[scene]
		got := map[string]string{}
		for _, u := range objects(t, text) {
			if u.GetKind() != "Service" || strings.HasPrefix(u.GetName(), "navarch-etcd") {
				continue
			}
			service := &corev1.Service{}
			object(t, text, "Service", u.GetName(), service)
			for _, port := range service.Spec.Ports {
				var by []string
				for name, pod := range podsOf(t, text) {
					if contains(pod.Labels, service.Spec.Selector) &&
						slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port.TargetPort.StrVal }) {
						by = append(by, strings.TrimPrefix(name, "Deployment "))
					}
				}
				slices.Sort(by)
				got[fmt.Sprintf("%s:%d", service.Name, port.Port)] = strings.Join(by, " ")
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v,\nwant %v", scene, got, want)
		}
	}
}

// Objects that must outlive the release are annotated for Helm to keep them.
func TestKubeChartKeeps(t *testing.T) {
	t.Parallel()
	kept := 0
	for scene, text := range scenes(t) {
		for _, u := range objects(t, text) {
			kind := u.GetKind()
			if keep := u.GetAnnotations()["helm.sh/resource-policy"] == "keep"; keep != (kind == "Secret" || kind == "PersistentVolumeClaim") {
				t.Errorf("%s: %s %s: kept: %v", scene, kind, u.GetName(), keep)
			} else if keep {
				kept++
			}
		}
	}
	if kept < 5 {
		t.Errorf("%d objects are kept", kept)
	}
}

// The claim of snapshots has a Pod that needs it from the start: some storage classes bind a claim only then, and Helm
// waits for that. A Job with other work has another name, because Kubernetes refuses changes of a Job's template.
func TestKubeChartFirstSnapshot(t *testing.T) {
	t.Parallel()
	first := func(text string) (name string) {
		for of, pod := range podsOf(t, text) {
			kind, its, _ := strings.Cut(of, " ")
			for _, v := range pod.Spec.Volumes {
				if kind == "Job" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "navarch-etcd-snapshots" {
					name = its
				}
			}
		}
		return name
	}
	name := first(scenes(t)["default"])
	if !strings.HasPrefix(name, "navarch-etcd-snapshot-first-") {
		t.Errorf("the claim is needed by the Job %q", name)
	}
	job := &batchv1.Job{}
	object(t, scenes(t)["default"], "Job", name, job)
	if job.Annotations["helm.sh/hook"] != "" || job.Spec.ActiveDeadlineSeconds != nil || job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("%+v", job)
	}
	if again, other := first(template(t, "--set", "podLabels.a=b")), first(template(t, "--set", "etcd.own.image=other")); again != name || other == name {
		t.Errorf("with the same to do it is %s, with another image %s; was %s", again, other, name)
	}
}

// A snapshot is restored for the future members of the cluster, each into its folder, by a Job with a descriptive name;
// no member runs meanwhile, and the snapshots are not replaced.
func TestKubeChartRestores(t *testing.T) {
	t.Parallel()
	text := scenes(t)["restore"]
	set := &appsv1.StatefulSet{}
	object(t, text, "StatefulSet", "navarch-etcd", set)
	if *set.Spec.Replicas != 0 {
		t.Errorf("%d members run", *set.Spec.Replicas)
	}
	restored := map[string]bool{} // members
	for of, pod := range podsOf(t, text) {
		kind, name, _ := strings.Cut(of, " ")
		if kind == "CronJob" {
			job := &batchv1.CronJob{}
			if object(t, text, kind, name, job); job.Spec.Suspend == nil || !*job.Spec.Suspend {
				t.Errorf("%s runs", name)
			}
		}
		c := pod.Spec.Containers[0]
		if c.Name != "etcdutl" {
			continue
		}
		member := strings.TrimPrefix(pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "data-")
		restored[member] = true
		for _, arg := range c.Args[5:] {
			if own := strings.ReplaceAll(arg, member+".", "$(POD_NAME)."); arg != "--name="+member && !slices.Contains(set.Spec.Template.Spec.Containers[0].Args, own) && !slices.Contains(set.Spec.Template.Spec.Containers[0].Args, arg) {
				t.Errorf("%s is restored with %s, and runs with %v", member, arg, set.Spec.Template.Spec.Containers[0].Args)
			}
		}
		// Watches of clients that were there must not go on as if nothing had happened: revisions go on above all that there
		// have been, and those before are compacted
		// (https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump).
		if got := strings.Join(c.Args[:5], " "); got != "snapshot restore /snapshots/h06.db --bump-revision=1000000000 --mark-compacted" || !slices.Contains(c.Args, "--data-dir=/var/lib/etcd/restored") {
			t.Errorf("%s: %v", name, c.Args)
		}
	}
	if len(restored) != 3 {
		t.Errorf("the members %v are restored", restored)
	}
}

// A KMS Secret may have any name that Secrets can have, for example with dots, which names of volumes may not contain,
// and can be mounted twice. A tag may be longer than a label.
func TestKubeChartNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("t", 62)
	text := template(t, "--set", "kek.kms.enabled=true,kek.kms.image=kms,kek.kms.secrets[0].name=a.b,kek.kms.secrets[0].mountPath=/a,kek.kms.secrets[1].name=a.b,kek.kms.secrets[1].mountPath=/b,tag="+long+"_x")
	pod := podsOf(t, text)["Deployment istiod"]
	var secrets, mounts []string
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && strings.HasPrefix(v.Name, "kms-") {
			secrets = append(secrets, v.Name+" "+v.Secret.SecretName)
		}
	}
	for _, m := range pod.Spec.InitContainers[0].VolumeMounts {
		mounts = append(mounts, m.Name+" "+m.MountPath)
	}
	if !slices.Equal(secrets, []string{"kms-0 a.b", "kms-1 a.b"}) || !slices.Equal(mounts, []string{"kms /var/run/kms", "kms-0 /a", "kms-1 /b"}) {
		t.Errorf("volumes %v, mounts %v", secrets, mounts)
	}
	if got := pod.Labels["app.kubernetes.io/version"]; got != long || !strings.HasSuffix(pod.Spec.Containers[0].Image, long+"_x") {
		t.Errorf("version %s, image %s", got, pod.Spec.Containers[0].Image)
	}
}

// `make chart` packages the chart for the images of `make image` from the same tree: an installation without a tag runs
// the built images. Without a registry of one's own, etcd's image is the published one, of the version that navarchd is
// tested with.
func TestKubeChartVersion(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"chart", "image"} {
		out, err := execute(t, "make", "-C", "../..", "-n", target, "VERSION=of-this-tree")
		if err != nil || !strings.Contains(out, "version 'of-this-tree'") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
	modules, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(modules), "\tgo.etcd.io/etcd/server/v3 ")
	version, _, _ = strings.Cut(version, "\n")
	set := &appsv1.StatefulSet{}
	object(t, scenes(t)["default"], "StatefulSet", "navarch-etcd", set)
	if got := set.Spec.Template.Spec.Containers[0].Image; got != "gcr.io/etcd-development/etcd:"+version {
		t.Errorf("etcd's image is %s", got)
	}
}

// The copy of the chart by `make chart` contains all of Istio's definitions, each with the annotation for Helm to keep
// it.
func TestKubeChartDefinitions(t *testing.T) {
	t.Parallel()
	chart := packaged(t)
	definitions, err := os.ReadFile(filepath.Join(chart, "files", "crds", "istio.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := helm(t).Run(t.Context(), "template", "navarch", chart, "--set", "crds.install=true")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, u := range objects(t, text) {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if found++; u.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("uninstalling deletes %s", u.GetName())
		}
	}
	if want := strings.Count(string(definitions), "\nkind: CustomResourceDefinition\n"); found != want || want == 0 {
		t.Errorf("%d definitions, want %d", found, want)
	}
}

// packaged returns the folder of a copy of the chart with Istio's definitions, as `make chart` makes it.
func packaged(t *testing.T) string {
	t.Helper()
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := os.ReadFile(filepath.Join(tools, "crds", "istio.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "navarch")
	if err := os.CopyFS(folder, os.DirFS(helm(t).Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "files", "crds"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "files", "crds", "istio.yaml"), definitions, 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return len(some) > 0
}
