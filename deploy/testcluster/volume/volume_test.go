package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/deploy/testcluster/podenv"
)

// read returns a volume as a container sees it: path=content:mode, through links.
func read(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	var walk func(below string)
	walk = func(below string) {
		entries, err := os.ReadDir(filepath.Join(dir, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(below, e.Name())
			info, err := os.Stat(filepath.Join(dir, name))
			switch {
			case err != nil:
				t.Fatal(err)
			case strings.HasPrefix(e.Name(), ".."):
			case info.IsDir():
				walk(name)
			default:
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%s=%s:%o", name, text, info.Mode().Perm()))
			}
		}
	}
	walk("")
	return strings.Join(all, " ")
}

func podWith(source corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}}}
}

func TestConfigMapVolume(t *testing.T) {
	data := map[string]string{"a": "1", "b": "2"}
	var missing error
	from := Source{Source: podenv.Source{ConfigMap: func(string, string) (*corev1.ConfigMap, error) { return &corev1.ConfigMap{Data: data}, missing }}}
	dir := t.TempDir()
	s := New(dir, from)
	pod := podWith(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})
	expect := func(want string) {
		t.Helper()
		if _, err := s.Sync(t.Context(), pod, corev1.PodStatus{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(dir, "v")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect("a=1:644 b=2:644")
	data = map[string]string{"a": "3", "c": "4"}
	expect("a=3:644 c=4:644")
	mode := int32(0o400)
	pod.Spec.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: "a", Path: "deep/er/a"}, {Key: "c", Path: "deep/c", Mode: &mode}}
	expect("deep/c=4:400 deep/er/a=3:644")
}

func TestRefusedVolumes(t *testing.T) {
	for name, source := range map[string]corev1.VolumeSource{"not found": {Secret: &corev1.SecretVolumeSource{SecretName: "absent"}}, "not supported": {NFS: &corev1.NFSVolumeSource{}}} {
		s := New(t.TempDir(), Source{Source: podenv.Source{Secret: func(string, string) (*corev1.Secret, error) { return nil, errors.New("not found") }}})
		if _, err := s.Sync(t.Context(), podWith(source), corev1.PodStatus{}, time.Now()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (files{}).add("../out", "x", nil, 0o644); err == nil {
		t.Error("a path that leaves the volume was taken")
	}
}

// A token is renewed after four fifths of its lifetime. While no new one is available the old one stays until its end.
func TestTokenRenewal(t *testing.T) {
	asked, away := 0, false
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	began := now
	s := New(t.TempDir(), Source{Token: func(_ context.Context, _ *corev1.Pod, audience string, seconds int64) (string, time.Time, error) {
		if away {
			return "", time.Time{}, errors.New("away")
		}
		asked++
		return fmt.Sprintf("%s-%d", audience, asked), now.Add(time.Duration(seconds) * time.Second), nil
	}})
	seconds := int64(1000)
	pod := podWith(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "istio-ca", ExpirationSeconds: &seconds, Path: "token"}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}}}})
	for _, step := range []struct {
		second int
		away   bool
		want   string // "": an error
	}{{0, false, "istio-ca-1"}, {799, false, "istio-ca-1"}, {800, false, "istio-ca-2"}, {1599, true, "istio-ca-2"}, {1700, true, "istio-ca-2"}, {1800, true, ""}, {1801, false, "istio-ca-3"}} {
		now, away = began.Add(time.Duration(step.second)*time.Second), step.away
		renew, err := s.Sync(t.Context(), pod, corev1.PodStatus{}, now)
		if (err != nil) != (step.want == "") {
			t.Fatalf("at %d s: %v", step.second, err)
		}
		if err != nil {
			continue
		}
		if got, want := read(t, filepath.Join(s.dir, "v")), `labels=app="a":644 token=`+step.want+":644"; got != want {
			t.Errorf("at %d s: %q, want %q", step.second, got, want)
		}
		if step.second == 0 && !renew.Equal(began.Add(800*time.Second)) {
			t.Errorf("renewed at %s", renew.Sub(began))
		}
	}
}

// A Pod waits until its claim is bound. The volume is the same for every Pod with that claim, and stays after one of
// them is deleted.
func TestClaimVolume(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "pvc-1")
	unbound := errors.New("not bound")
	from := Source{Claim: func(namespace, name string) (string, error) {
		if namespace != "shop" || name != "data" {
			return "", fmt.Errorf("%s/%s was asked for", namespace, name)
		}
		return volume, unbound
	}}
	pod := podWith(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	first, second := t.TempDir(), t.TempDir()
	if _, err := New(first, from).Sync(t.Context(), pod, corev1.PodStatus{}, time.Now()); !errors.Is(err, unbound) {
		t.Errorf("before it is bound: %v", err)
	}
	unbound = nil
	for _, dir := range []string{first, second} {
		s := New(dir, from)
		for range 2 {
			if _, err := s.Sync(t.Context(), pod, corev1.PodStatus{}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/data"}}}, nil)
		if err != nil || len(got) != 1 || got[0].ReadOnly {
			t.Fatalf("%+v %v", got, err)
		}
		if err := os.WriteFile(filepath.Join(got[0].Source, filepath.Base(dir)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(volume); err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	if got, err := New(first, from).Mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/data"}}}, nil); err != nil || !got[0].ReadOnly {
		t.Errorf("of a claim that is only read: %+v %v", got, err)
	}
}

func TestMounts(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, Source{})
	pod := podWith(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	if _, err := s.Sync(t.Context(), pod, corev1.PodStatus{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	mount := corev1.VolumeMount{Name: "v", MountPath: "/work", SubPathExpr: "$(NAME)/x"}
	got, err := s.Mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{mount}}, []string{"NAME=p-1"})
	if err != nil || len(got) != 1 || got[0].Source != filepath.Join(dir, "v", "p-1", "x") || got[0].Target != "/work" || got[0].ReadOnly {
		t.Errorf("%+v %v", got, err)
	}
	mount = corev1.VolumeMount{Name: "v", MountPath: "/work", SubPath: "../../etc"}
	if got, err := s.Mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{mount}}, nil); err == nil {
		t.Errorf("a path that leaves the volume was mounted: %+v", got)
	}
}
