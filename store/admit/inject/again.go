package inject

import (
	"encoding/json"
	"fmt"

	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/scrape"
)

// overrides contains the Pod author's settings for containers that templates add (annotation proxy.istio.io/overrides).
type overrides struct {
	Containers     []corev1.Container `json:"containers,omitempty"`
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
}

func (o overrides) find(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{o.Containers, o.InitContainers} {
		if i := index(list, name); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// injected contains the facts about an earlier injection in a Pod's annotations. The zero value stands for a Pod
// without an earlier injection.
type injected struct {
	there bool
	names names
	own   overrides
}

func injectedBefore(pod *corev1.Pod) (injected, error) {
	text, there := pod.Annotations[statusAnnotation]
	if !there {
		return injected{}, nil
	}
	b := injected{there: true}
	if err := json.Unmarshal([]byte(text), &b.names); err != nil {
		return injected{}, fmt.Errorf("annotation %s, which injectors write: %w", statusAnnotation, err)
	}
	if text, there = pod.Annotations[annotation.ProxyOverrides.Name]; there {
		if err := json.Unmarshal([]byte(text), &b.own); err != nil {
			return injected{}, fmt.Errorf("annotation %s, which injectors write: %w", annotation.ProxyOverrides.Name, err)
		}
	}
	return b, nil
}

// undo restores a Pod's own probes and Prometheus annotations, which the earlier injection redirected to the agent.
// Containers from templates stay, because other webhooks or users may have changed them since.
func (b injected) undo(pod *corev1.Pod) {
	if !b.there {
		return
	}
	if sidecar := container(ProxyContainer, pod); sidecar != nil {
		restoreProbes(pod, takeEnv(sidecar, probersVariable))
		restoreMetrics(pod, takeEnv(sidecar, scrape.Variable), b.names.Annotations)
	}
}

// takeEnv removes an environment variable from a container and returns its value. The result is empty if the container
// does not have the variable.
func takeEnv(c *corev1.Container, name string) string {
	for i := range c.Env {
		if c.Env[i].Name == name {
			value := c.Env[i].Value
			c.Env = append(c.Env[:i], c.Env[i+1:]...)
			return value
		}
	}
	return ""
}

// written returns a copy of a Pod as its author wrote it. The argument is the Pod after undo. Containers from templates
// are removed, or replaced by the author's settings for them. If the proxy's container is an init container of the
// result, it is moved to the containers.
func (b injected) written(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	if b.there {
		delete(out.Annotations, statusAnnotation)
		delete(out.Annotations, annotation.ProxyOverrides.Name)
		for _, key := range b.names.Labels {
			delete(out.Labels, key)
		}
		for _, key := range b.names.Annotations {
			delete(out.Annotations, key)
		}
		out.Spec.Containers = b.without(out.Spec.Containers, b.names.Containers, b.own.Containers)
		out.Spec.InitContainers = b.without(out.Spec.InitContainers, b.names.InitContainers, b.own.InitContainers)
	}
	if i := index(out.Spec.InitContainers, ProxyContainer); i >= 0 {
		out.Spec.Containers = append(out.Spec.Containers, out.Spec.InitContainers[i])
		out.Spec.InitContainers = append(out.Spec.InitContainers[:i], out.Spec.InitContainers[i+1:]...)
	}
	return out
}

func (b injected) without(list []corev1.Container, drawn []string, own []corev1.Container) (kept []corev1.Container) {
	ours := setOf(drawn)
	for _, c := range list {
		if i := index(own, c.Name); i >= 0 {
			kept = append(kept, own[i])
		} else if !ours[c.Name] {
			kept = append(kept, c)
		}
	}
	return kept
}
