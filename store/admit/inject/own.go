package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"
)

// autoImage stands for the template's image in an author's container, because Kubernetes requires an image there.
const autoImage = "auto"

// own takes the containers of the Pod's author, and merges them onto the templates' containers with the same names. The
// author's values take precedence. The first injection of a Pod also stores the author's containers in the annotation
// proxy.istio.io/overrides, so that a second injection can separate them from the templates' values.
func (w *task) own(pod, out *corev1.Pod) (*corev1.Pod, error) {
	find := w.before.own.find
	if !w.before.there {
		find = func(name string) *corev1.Container { return container(name, pod) }
	}
	var own overrides
	overlay := func(name string) (all []corev1.Container) {
		if found := find(name); found != nil {
			c := *found.DeepCopy()
			if c.Image == autoImage {
				c.Image = ""
			}
			if name == ProxyContainer && sharesUser(&c, pod) {
				c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup = nil, nil
			}
			all = append(all, c)
		}
		return all
	}
	for _, name := range w.drawn.Containers {
		own.Containers = append(own.Containers, overlay(name)...)
	}
	for _, name := range w.drawn.InitContainers {
		own.InitContainers = append(own.InitContainers, overlay(name)...)
	}
	if len(own.Containers)+len(own.InitContainers) == 0 {
		return out, nil
	}
	out, err := mergeOwn(out, own)
	if err != nil {
		return nil, err
	}
	if !w.before.there {
		text, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[annotation.ProxyOverrides.Name] = string(text)
	}
	w.matchUser(own.find(ProxyContainer), out)
	return out, nil
}

// sharesUser reports whether all other containers of a Pod state the same user as the author's container for the proxy.
// In this case the cluster has set the user, as OpenShift does from a namespace's range. If the proxy ran as this user,
// all traffic of the application would be excluded from redirection.
func sharesUser(proxy *corev1.Container, pod *corev1.Pod) bool {
	user := func(c *corev1.Container) *int64 {
		if c.SecurityContext == nil {
			return nil
		}
		return c.SecurityContext.RunAsUser
	}
	common := user(proxy)
	if common == nil {
		return false
	}
	others := 0
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name == ProxyContainer {
			continue
		}
		if others++; user(c) == nil || *user(c) != *common {
			return false
		}
	}
	return others > 0
}

// mergeOwn merges the author's containers onto the Pod's containers of the same names.
func mergeOwn(pod *corev1.Pod, own overrides) (*corev1.Pod, error) {
	onto, err := toMap(pod)
	if err != nil {
		return nil, err
	}
	over, err := toMap(&corev1.Pod{Spec: corev1.PodSpec{Containers: own.Containers, InitContainers: own.InitContainers}})
	if err != nil {
		return nil, err
	}
	spec := over["spec"].(map[string]any)
	if own.Containers == nil {
		delete(spec, "containers") // null would remove all containers
	}
	merged, err := merge(onto, map[string]any{"spec": spec}, false)
	if err != nil {
		return nil, fmt.Errorf("the Pod's own settings of the templates' containers cannot be merged: %w", err)
	}
	return toPod(merged)
}

// matchUser adapts redirection to the user and group that the author chose for the proxy. Redirection excludes the
// traffic of the user in the argument -u of istio-init and istio-validation, so matchUser sets this argument to the
// chosen user. It also makes istio-validation run as the chosen user and group. With TPROXY, matchUser keeps -u and
// makes the proxy run as root. With TPROXY, redirection also excludes the chosen group (-g), unless it is 0. The
// parameter proxy is the author's container for the proxy. If it is nil, matchUser changes nothing.
func (w *task) matchUser(proxy *corev1.Container, out *corev1.Pod) {
	if proxy == nil || proxy.SecurityContext == nil {
		return
	}
	user, group := proxy.SecurityContext.RunAsUser, proxy.SecurityContext.RunAsGroup
	tproxy := w.proxy.GetInterceptionMode().String() == "TPROXY" || out.Annotations[annotation.SidecarInterceptionMode.Name] == "TPROXY"
	if tproxy && user != nil {
		if c := container(ProxyContainer, out); c != nil && c.SecurityContext != nil {
			c.SecurityContext.RunAsUser = new(int64)
		}
	}
	for i := range out.Spec.InitContainers {
		c := &out.Spec.InitContainers[i]
		if c.Name != initContainer && c.Name != validationContainer {
			continue
		}
		if c.Name == validationContainer && !tproxy {
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			if user != nil {
				c.SecurityContext.RunAsUser = user
			}
			if group != nil {
				c.SecurityContext.RunAsGroup = group
			}
		}
		at := slices.Index(c.Args, "-u")
		switch {
		case at < 0 || at+1 >= len(c.Args):
		case tproxy && group != nil && *group != 0:
			c.Args = slices.Insert(c.Args, at+2, "-g", strconv.FormatInt(*group, 10))
		case !tproxy && user != nil && *user != 0:
			c.Args[at+1] = strconv.FormatInt(*user, 10)
		}
	}
}
