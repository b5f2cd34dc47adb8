package inject

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// large are Pods with n of one kind of thing.
var large = map[string]func(p *corev1.Pod, n int){
	"256 containers": func(p *corev1.Pod, n int) {
		p.Spec.Containers = nil
		for i := range n {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "x"})
		}
		p.Spec.Containers, p.Spec.InitContainers = p.Spec.Containers[:n/2], p.Spec.Containers[n/2:]
	},
	"4096 environment variables": func(p *corev1.Pod, n int) {
		second := corev1.Container{Name: "second", Image: "x"}
		for i := range n {
			c := []*corev1.Container{&p.Spec.Containers[0], &second}[i%2]
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), Value: "v"})
		}
		p.Spec.Containers = append(p.Spec.Containers, second)
	},
	"4096 volume mounts": func(p *corev1.Pod, n int) {
		for i := range n {
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint("v", i), MountPath: fmt.Sprint("/v", i)})
		}
	},
	"4096 volumes": func(p *corev1.Pod, n int) {
		for i := range n {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
	},
	"4096 ports": func(p *corev1.Pod, n int) {
		for i := range n {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: int32(i + 1)})
		}
	},
	"4096 labels and annotations": func(p *corev1.Pod, n int) {
		p.Labels = map[string]string{"app": "web"}
		for i := range n - 1 {
			p.Labels[fmt.Sprint("l", i)] = ""
		}
	},
	"at most 262144": func(p *corev1.Pod, n int) { p.Annotations = map[string]string{"note": strings.Repeat("x", n-4)} },
	"has at most 4096": func(p *corev1.Pod, n int) {
		volumes := map[string]corev1.Volume{}
		for i := range n {
			volumes[fmt.Sprint("v", i)] = corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
		}
		text, err := json.Marshal(volumes)
		if err != nil {
			panic(err)
		}
		p.Annotations = map[string]string{annotation.SidecarUserVolume.Name: string(text)}
	},
	"an author's directive beside 4096 environment variables": func(p *corev1.Pod, n int) {
		own := corev1.Container{Name: ProxyContainer, Image: autoImage}
		own.Resources.Limits = corev1.ResourceList{"$patch": resource.MustParse("1")}
		p.Spec.Containers = append(p.Spec.Containers, own)
		fillVariables(&p.Spec.Containers[1], n)
	},
	"a volume's directive beside 4096 environment variables": func(p *corev1.Pod, n int) {
		p.Annotations = map[string]string{annotation.SidecarUserVolume.Name: `{"v": {"$patch": "unheardOf", "emptyDir": {}}}`}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: ProxyContainer, Image: autoImage})
		fillVariables(&p.Spec.Containers[1], n)
	},
}

func fillVariables(c *corev1.Container, n int) {
	for i := range n {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), Value: "v"})
	}
}

// bounds are the limits that large exceeds, by message.
var bounds = map[string]int{"256 containers": maxContainers, "at most 262144": maxAnnotations}

// A Pod at each bound is injected. With one element more it is refused, by the name of the bound; a Pod without a proxy
// is admitted nevertheless.
// Promise: security-admission.md#expensive-objects
func TestLargePods(t *testing.T) {
	h := ready(t)
	for name, fill := range large {
		t.Run(name, func(t *testing.T) {
			most := maxLists
			if other, is := bounds[name]; is {
				most = other
			}
			pod := podOf(t, simplePod)
			fill(pod, most)
			if a := h.Admit(t.Context(), "/inject", review(encoded(t, pod))); !a.Allowed || len(a.Patch) == 0 || len(a.Patch) > maxPatch {
				t.Errorf("with %d: %.300v", most, a.Result)
			}
			more := podOf(t, simplePod)
			fill(more, most+2)
			a := h.Admit(t.Context(), "/inject", review(encoded(t, more)))
			of := strings.Fields(name)
			if a.Allowed || !strings.Contains(a.Result.Message, of[len(of)-1]) || !strings.Contains(a.Result.Message, fmt.Sprint(most)) {
				t.Errorf("with more than %d: %v %.300v", most, a.Allowed, a.Result)
			}
			more.Spec.HostNetwork = true
			if r := review(encoded(t, more)); h.Concerns(r) || !h.Admit(t.Context(), "/inject", r).Allowed {
				t.Error("it gets no proxy, and is refused")
			}
		})
	}
}

// Memory grows with a Pod's lists, not with their squares: neither in decoding, nor in templates, nor in merging, nor
// in the patch.
// Promise: security-admission.md#expensive-objects
func TestInjectionIsLinear(t *testing.T) {
	h := ready(t)
	for name, fill := range large {
		if name == "at most 262144" {
			continue
		}
		most := maxLists
		if other, is := bounds[name]; is {
			most = other
		}
		took := func(n int) uint64 {
			pod := podOf(t, simplePod)
			fill(pod, n)
			r := review(encoded(t, pod))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if a := h.Admit(t.Context(), "/inject", r); !a.Allowed {
				t.Fatal(a.Result)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		took(most / 8) // the first read
		if some, all := took(most/8), took(most); all > 12*some {
			t.Errorf("%s: an eighth of them takes %d bytes, and all take %d", name, some, all)
		}
	}
}

// Annotations are bounded before they are decoded.
// Promise: security-admission.md#expensive-objects
func TestHeavyAnnotations(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d]\n"
	containers := `{"containers": [` + strings.Repeat(`{},`, maxContainers) + `{}]}`
	for want, annotations := range map[string]map[string]string{
		"more than 8192 values": {annotation.ProxyConfig.Name: bomb},
		"at most 32768":         {annotation.ProxyConfig.Name: strings.Repeat(" ", maxConfigText) + "a: b"},
		"257 containers":        {statusAnnotation: "{}", annotation.ProxyOverrides.Name: containers[:len(containers)-5] + "]}"},
		"volume mounts":         {annotation.SidecarUserVolumeMount.Name: "[" + strings.Repeat("{},", maxLists) + "{}]"},
	} {
		pod := podOf(t, simplePod)
		pod.Annotations = annotations
		if a := ready(t).Admit(t.Context(), "/inject", review(encoded(t, pod))); a.Allowed || !strings.Contains(a.Result.Message, want) {
			t.Errorf("want %q: %v %.300v", want, a.Allowed, a.Result)
		}
	}
}

// An answer has a bound of its own.
// Promise: security-admission.md#expensive-objects
func TestLargePatches(t *testing.T) {
	pod := podOf(t, simplePod)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: ProxyContainer, Image: autoImage, Args: []string{strings.Repeat("x", maxPatch)}})
	if a := ready(t).Admit(t.Context(), "/inject", review(encoded(t, pod))); a.Allowed || !strings.Contains(a.Result.Message, "1048576") {
		t.Errorf("%v %.300v", a.Allowed, a.Result)
	}
}

// The injection ends when its client has gone.
// Promise: security-admission.md#expensive-objects
func TestInjectionEndsWithItsContext(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	pod := podOf(t, simplePod)
	if _, err := settings(t).Inject(gone, Request{Pod: pod, Namespace: "shop"}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Error(err)
	}
}

// For any change of a list of names, the patch produces the new list; if many elements change their places, it replaces
// the list.
// Promise: security-admission.md#expensive-objects
func TestPatchOfLists(t *testing.T) {
	pod := func(names []string) *corev1.Pod {
		p := podOf(t, simplePod)
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name})
		}
		return p
	}
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprint("v", i))
	}
	back := slices.Clone(many)
	slices.Reverse(back)
	for _, c := range [][2][]string{{{"a", "b", "c"}, {"c", "x", "a"}}, {{"a"}, {"b"}}, {{"a", "b", "c", "d", "e"}, {"e", "d", "x", "b", "a"}}, {many, back}, {many[:60], back[140:]},
		{{"a", "b", "c", "d"}, {"b", "a", "d", "c"}}, {many, append([]string{"first", "v9"}, many[10:]...)}} {
		from, to := pod(c[0]), pod(c[1])
		patch, err := Patch(from, to)
		if err != nil {
			t.Fatal(err)
		}
		var got corev1.Pod
		if err := json.Unmarshal(apply(t, encoded(t, from), patch), &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range got.Spec.Volumes {
			names = append(names, v.Name)
		}
		if !slices.Equal(names, c[1]) {
			t.Errorf("%v becomes %v, want %v: %s", c[0], names, c[1], patch)
		}
	}
}
