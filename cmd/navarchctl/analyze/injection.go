package analyze

import (
	"cmp"
	"slices"
	"strings"

	"istio.io/api/annotation"
	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Labels, names and values of injection (https://istio.io/latest/docs/ops/common-problems/injection/).
const (
	injection     = "istio-injection"
	enabled       = "enabled"
	dataPlaneMode = "istio.io/dataplane-mode"
	proxyName     = "istio-proxy"
	autoImage     = "auto"
	injectorName  = "istio-sidecar-injector"
)

// hook is one webhook of Istio for the creation of Pods.
type hook struct {
	of *object.Object // the MutatingWebhookConfiguration
	*admissionregistrationv1.MutatingWebhook
}

// findHooks returns the injection webhooks.
func (w *world) findHooks() (all []hook) {
	for o, c := range decoded[admissionregistrationv1.MutatingWebhookConfiguration](w, admissionregistrationv1.GroupName,
		"MutatingWebhookConfiguration") {
		for i := range c.Webhooks {
			if strings.HasSuffix(c.Webhooks[i].Name, "istio.io") {
				all = append(all, hook{o, &c.Webhooks[i]})
			}
		}
	}
	return all
}

// injects reports whether a webhook selects a Pod for injection, by the labels of the namespace and of the Pod. If no
// webhook is known, injects applies the selectors of Istio's charts.
func (w *world) injects(namespace, pod map[string]string) bool {
	if len(w.hooks) > 0 {
		return slices.ContainsFunc(w.hooks, func(h hook) bool {
			yes, _ := inject.Selects(h.MutatingWebhook, namespace, pod)
			return yes
		})
	}
	stated, revision := pod[label.SidecarInject.Name], namespace[label.IoIstioRev.Name]+pod[label.IoIstioRev.Name]
	switch {
	case stated == "false" || namespace[injection] == "disabled":
		return false
	case namespace[injection] == enabled || namespace[injection] == "" && revision != "":
		return true
	}
	return stated == "true"
}

// findInjectors returns the Helm values of all sidecar injectors, by the name of the injector's ConfigMap.
func (w *world) findInjectors() map[string]*injectorValues {
	all := map[string]*injectorValues{}
	for o, m := range decoded[corev1.ConfigMap](w, "", "ConfigMap") {
		values := &injectorValues{}
		if strings.HasPrefix(o.ID.Name, injectorName) && yaml.Unmarshal([]byte(m.Data["values"]), values) == nil {
			all[o.ID.Name] = values
		}
	}
	return all
}

// injectorOf returns the values of the injector for the revision in a namespace's labels. The result is nil if the
// injector's ConfigMap was not read.
func (w *world) injectorOf(namespace map[string]string) *injectorValues {
	return w.injectors[inject.NameOf(injectorName, namespace[label.IoIstioRev.Name])]
}

// injectorValues is the decoded part of the entry "values" in the ConfigMap istio-sidecar-injector.
type injectorValues struct {
	Global struct {
		Hub   string `json:"hub"`
		Tag   any    `json:"tag"`
		Proxy struct {
			Image string `json:"image"`
		} `json:"proxy"`
	} `json:"global"`
	SidecarInjectorWebhook struct {
		EnableNamespacesByDefault bool `json:"enableNamespacesByDefault"`
	} `json:"sidecarInjectorWebhook"`
}

// namespaces reports namespaces without an injection label, namespaces with both injection labels, and namespaces whose
// Pods are injected by default.
func namespaces(w *world) {
	for _, o := range w.byKind[kind{"", "Namespace"}] {
		stated, byRevision := o.Labels[injection], o.Labels[label.IoIstioRev.Name] != ""
		switch {
		case w.ofSystem(o.ID.Name) || o.Labels[dataPlaneMode] == "ambient":
		case stated != "" && byRevision:
			w.found(problem.NamespaceMultipleInjectionLabels, o.ID, "metadata.labels",
				"has both %s and %s: remove one, istio-injection counts alone",
				injection, label.IoIstioRev.Name)
		case stated != "" || byRevision || slices.ContainsFunc(w.pods, func(p *pod) bool {
			return p.meta.Namespace == o.ID.Name && p.labels[label.SidecarInject.Name] == "true" // as Pods of gateways have
		}):
		default:
			if v := w.injectorOf(o.Labels); v != nil && v.SidecarInjectorWebhook.EnableNamespacesByDefault {
				w.found(problem.NamespaceInjectionEnabledByDefault, o.ID, "metadata.labels",
					"has no label of injection, and Pods get a proxy by default")
				continue
			}
			w.found(problem.NamespaceNotInjected, o.ID, "metadata.labels",
				"Pods without the label %s get no proxy: label the namespace %s=%s, or %s=disabled if no Pod shall have one, also no gateway",
				label.SidecarInject.Name, injection, enabled, injection)
		}
	}
}

// pods reports running Pods that have no proxy although injection selects them.
func pods(w *world) {
	for _, p := range w.pods {
		space := w.spaces[p.meta.Namespace]
		if !p.real || p.ended || p.object.Location != "" || p.spec.HostNetwork || w.ofSystem(p.meta.Namespace) || !w.knows("Namespace") {
			continue
		}
		stated := cmp.Or(p.labels[label.SidecarInject.Name], p.notes[annotation.SidecarInject.Name])
		if !strings.EqualFold(stated, "false") && w.injects(space, p.labels) && proxyOf(p) == nil {
			w.found(problem.PodMissingProxy, p.meta, "spec.containers",
				"has no proxy, though a Pod with its labels gets one now: restart the workload")
		}
	}
}

// proxyOf returns the container of a Pod's proxy, which may be a native sidecar. The result is nil if the Pod has no
// proxy.
func proxyOf(p *pod) *corev1.Container {
	for _, list := range [][]corev1.Container{p.spec.Containers, p.spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == proxyName }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// autoImages reports proxies with the image "auto", a placeholder that only injection replaces.
func autoImages(w *world) {
	for _, p := range w.pods {
		c := proxyOf(p)
		switch {
		case c == nil || c.Image != autoImage:
		case p.real:
			w.found(problem.ImageAutoWithoutInjectionError, p.meta, "spec.containers",
				"the proxy has the image auto, which injection would have replaced")
		case w.knows("Namespace", "MutatingWebhookConfiguration") && !w.injects(w.spaces[p.meta.Namespace], p.labels):
			w.found(problem.ImageAutoWithoutInjectionWarning, p.meta, p.field("spec.containers"),
				"the proxy has the image auto, and no webhook of injection selects the labels of the Pod and its namespace")
		}
	}
}

// proxyImages reports namespaces with Pods whose proxy image differs from the image that injection sets now.
func proxyImages(w *world) {
	other := map[string][]string{}
	want := map[string]string{}
	for _, p := range w.pods {
		c := proxyOf(p)
		if !p.real || c == nil || p.ended || p.notes[annotation.SidecarProxyImage.Name] != "" || c.Image == autoImage {
			continue
		}
		space := w.spaces[p.meta.Namespace]
		if space[injection] != enabled && space[label.IoIstioRev.Name] == "" {
			continue
		}
		if _, known := want[p.meta.Namespace]; !known {
			want[p.meta.Namespace] = w.injectorOf(space).image()
		}
		if image := want[p.meta.Namespace]; image != "" && image != c.Image {
			other[p.meta.Namespace] = append(other[p.meta.Namespace], p.meta.Name)
		}
	}
	for _, namespace := range sorted(other) {
		id := w.id("", "Namespace", "", namespace)
		w.found(problem.PodsIstioProxyImageMismatchInNamespace, id, "",
			"proxies have another image than %s, which injection gives now: restart %s", want[namespace],
			some(other[namespace]))
	}
}

// image returns the image that injection sets for proxies. The result is empty if the image is unknown, for example
// because v is nil.
func (v *injectorValues) image() string {
	switch tag, is := v.tag(); {
	case v == nil || v.Global.Proxy.Image == "":
		return ""
	case strings.Contains(v.Global.Proxy.Image, "/"):
		return v.Global.Proxy.Image
	case !is || v.Global.Hub == "":
		return ""
	default:
		return v.Global.Hub + "/" + v.Global.Proxy.Image + ":" + tag
	}
}

// tag returns the tag of images as text. It returns false without a tag.
func (v *injectorValues) tag() (string, bool) {
	if v == nil {
		return "", false
	}
	switch tag := v.Global.Tag.(type) {
	case string:
		return tag, tag != ""
	case nil:
		return "", false
	default:
		raw, err := yaml.Marshal(tag)
		return strings.TrimSpace(string(raw)), err == nil
	}
}
