//go:build kube

package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/store/admit/inject"
)

// about returns the flags and variables of a navarchd that select the issuer of certificates.
func about(spec *corev1.PodTemplateSpec) (all []string) {
	c := spec.Spec.Containers[0]
	for _, arg := range c.Args {
		if strings.HasPrefix(arg, "--tls-") {
			all = append(all, strings.Replace(arg, "/etc/navarch/serving/", "", 1))
		}
	}
	for _, e := range c.Env {
		if slices.Contains([]string{"EXTERNAL_CA", "K8S_SIGNER", "CERT_SIGNER_DOMAIN", "ENABLE_CA_SERVER"}, e.Name) {
			all = append(all, e.Name+"="+e.Value)
		}
	}
	if mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/navarch/serving" }); mounted {
		all = append(all, "mounted")
	}
	return all
}

// Each process that needs another issuer has its settings, and the files of the Secret if it serves clients. The mesh
// has the issuer's roots, and agents have its address.
func TestKubeChartIssuers(t *testing.T) {
	t.Parallel()
	files := []string{"--tls-cert=tls.crt", "--tls-key=tls.key", "--tls-client-ca=ca.crt"}
	signers := []string{"EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER=example.com/mesh", "CERT_SIGNER_DOMAIN=example.com"}
	for scene, want := range map[string]map[string][]string{
		"default": {"istiod": nil},
		"signers": {"istiod": slices.Concat(files, signers, []string{"mounted"}), "istiod-ingest": signers},
		"issuer":  {"istiod": slices.Concat(files, []string{"ENABLE_CA_SERVER=false", "mounted"})},
	} {
		for name, wanted := range want {
			if got := about(podsOf(t, scenes(t)[scene])["Deployment "+name]); !slices.Equal(got, wanted) {
				t.Errorf("%s: %s: %q, want %q", scene, name, got, wanted)
			}
		}
	}
	for scene, want := range map[string][][]string{"default": nil, "signers": {{"example.com/mesh"}, {"example.com/other"}}, "issuer": {nil}} {
		settings, m := &corev1.ConfigMap{}, struct {
			CaCertificates []struct {
				Pem         string
				CertSigners []string
			}
		}{}
		object(t, scenes(t)[scene], "ConfigMap", "istio", settings)
		if err := yaml.Unmarshal([]byte(settings.Data["mesh"]), &m); err != nil {
			t.Fatal(err)
		}
		var got [][]string
		for _, c := range m.CaCertificates {
			if got = append(got, c.CertSigners); !strings.Contains(c.Pem, "BEGIN CERTIFICATE") {
				t.Errorf("%s: pem %q", scene, c.Pem)
			}
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: caCertificates of %q, want %q", scene, got, want)
		}
	}
	if text := scenes(t)["issuer"]; !strings.Contains(text, "caAddress: ca.cert-manager.svc:443") || strings.Contains(text, "name: navarchd-ca-istio-system") {
		t.Error("agents are not wanted of the other CA, or there is a role ca beside it")
	}
}

// With signers, role ca has the documented rights to exactly those signers.
func TestKubeChartRightsToSigners(t *testing.T) {
	t.Parallel()
	want := rights(t, docs.YAML(t, "kubernetes.md", "The right to have [signers of Kubernetes]"))["signers"]
	got := maps.Clone(rights(t, template(t, "-f", "ci/signers.yaml"))["ca"])
	for right := range rights(t, template(t, "-f", "ci/default.yaml"))["ca"] {
		delete(got, right)
	}
	want[": approve signers.certificates.k8s.io example.com/other"] = true
	if !maps.Equal(got, want) || len(want) < 6 {
		t.Errorf("%v,\nwant %v", got, want)
	}
}

// A part of the workloads is assigned to another revision by the labels that the injector reads, and the revision is
// promoted by the operators' command.
func TestKubeChartRevisions(t *testing.T) {
	t.Parallel()
	text := scenes(t)["signers"]
	settings, job := &corev1.ConfigMap{}, &batchv1.Job{}
	object(t, text, "ConfigMap", "istio-sidecar-injector", settings)
	if !strings.Contains(settings.Data["values"], "canary:\n    percent: 5\n    revision: next\n") {
		t.Errorf("values:\n%s", settings.Data["values"])
	}
	if _, err := inject.ParseConfig("the chart", settings.Data["config"], settings.Data["values"], nil); err != nil {
		t.Error(err)
	}
	object(t, text, "Job", "istiod-promote", job)
	c := job.Spec.Template.Spec.Containers[0]
	daemon := podsOf(t, text)["Deployment istiod"].Spec
	if said := strings.Join(append(c.Command, c.Args[:3]...), " "); said != "navarchctl store promote default" {
		t.Errorf("the Job runs %s", said)
	}
	for _, arg := range c.Args[3:] {
		if !slices.Contains(daemon.Containers[0].Args, arg) {
			t.Errorf("the Job is given %s, navarchd is not", arg)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.Contains(daemon.Containers[0].VolumeMounts, m) {
			t.Errorf("the Job has %v, navarchd has not", m)
		}
	}
	if !strings.HasPrefix(job.Annotations["helm.sh/hook"], "post-install,") || strings.Contains(scenes(t)["default"], "name: istiod-promote\n") {
		t.Error("the Job is no hook, or is there without being asked for")
	}
}
