// Package podenv computes the environment of containers as the kubelet does: variables that refer to others, fields of
// the Pod, keys of ConfigMaps and Secrets, and the Services of the namespace.
//
// Owns: nothing. Reads: its arguments. Never: uses a client.
package podenv

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Source returns the objects that environments refer to. Its error about an object that is not optional is the reason
// why a container waits.
type Source struct {
	ConfigMap func(namespace, name string) (*corev1.ConfigMap, error)
	Secret    func(namespace, name string) (*corev1.Secret, error)
	Services  func(namespace string) []*corev1.Service
}

// Make returns the environment of a container, as name=value; base is that of its image. Errors: a ConfigMap, Secret or
// key that is not optional is missing (the error of from, or one that names the key), or the error of Field or Resource
// with the name of the variable.
func Make(pod *corev1.Pod, c *corev1.Container, status corev1.PodStatus, base map[string]string, from Source) ([]string, error) {
	all := maps.Clone(base)
	if all == nil {
		all = map[string]string{}
	}
	if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
		maps.Copy(all, services(from.Services(pod.Namespace)))
	}
	for _, s := range from.Services("default") {
		if s.Name == "kubernetes" {
			maps.Copy(all, services([]*corev1.Service{s}))
		}
	}
	for _, e := range c.EnvFrom {
		more, err := envFrom(pod.Namespace, e, from)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, more)
	}
	for _, e := range c.Env {
		value, there, err := value(pod, c, status, e, all, from)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
		}
		if there {
			all[e.Name] = value
		}
	}
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list, nil
}

func envFrom(namespace string, e corev1.EnvFromSource, from Source) (map[string]string, error) {
	all := map[string]string{}
	if r := e.ConfigMapRef; r != nil {
		m, err := from.ConfigMap(namespace, r.Name)
		if err != nil && !isTrue(r.Optional) {
			return nil, err
		} else if err == nil {
			for name, value := range m.Data {
				all[e.Prefix+name] = value
			}
		}
	}
	if r := e.SecretRef; r != nil {
		s, err := from.Secret(namespace, r.Name)
		if err != nil && !isTrue(r.Optional) {
			return nil, err
		} else if err == nil {
			for name, value := range s.Data {
				all[e.Prefix+name] = string(value)
			}
		}
	}
	return all, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// value returns the value of one variable; false: it refers to an absent optional object.
func value(
	pod *corev1.Pod, c *corev1.Container, status corev1.PodStatus, e corev1.EnvVar, before map[string]string, from Source,
) (string, bool, error) {
	v := e.ValueFrom
	switch {
	case v == nil:
		return Expand(e.Value, before), true, nil
	case v.FieldRef != nil:
		text, err := Field(pod, status, v.FieldRef.FieldPath)
		return text, true, err
	case v.ResourceFieldRef != nil:
		text, err := Resource(pod, c, v.ResourceFieldRef)
		return text, true, err
	case v.ConfigMapKeyRef != nil:
		r := v.ConfigMapKeyRef
		m, err := from.ConfigMap(pod.Namespace, r.Name)
		if err == nil {
			if text, ok := m.Data[r.Key]; ok {
				return text, true, nil
			}
			err = fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", r.Key, pod.Namespace, r.Name)
		}
		return "", false, unless(r.Optional, err)
	case v.SecretKeyRef != nil:
		r := v.SecretKeyRef
		s, err := from.Secret(pod.Namespace, r.Name)
		if err == nil {
			if text, ok := s.Data[r.Key]; ok {
				return string(text), true, nil
			}
			err = fmt.Errorf("couldn't find key %s in Secret %s/%s", r.Key, pod.Namespace, r.Name)
		}
		return "", false, unless(r.Optional, err)
	}
	return "", false, fmt.Errorf("its source is of a kind that the cluster of processes does not know")
}

func unless(optional *bool, err error) error {
	if isTrue(optional) {
		return nil
	}
	return err
}

// services returns the variables by which containers find Services without DNS, except those in the form of Docker
// links.
func services(all []*corev1.Service) map[string]string {
	env := map[string]string{}
	for _, s := range all {
		if ip := net.ParseIP(s.Spec.ClusterIP); ip == nil || len(s.Spec.Ports) == 0 {
			continue // headless, or an external name
		}
		name := envName(s.Name)
		env[name+"_SERVICE_HOST"] = s.Spec.ClusterIP
		env[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
		for _, p := range s.Spec.Ports {
			if p.Name != "" {
				env[name+"_SERVICE_PORT_"+envName(p.Name)] = strconv.Itoa(int(p.Port))
			}
		}
	}
	return env
}

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

// Expand replaces $(NAME) by the value of a variable; $$ is one $. An unknown name is left unchanged.
func Expand(s string, env map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		if s[i+1] == '$' {
			b.WriteByte('$')
			i++
			continue
		}
		end := strings.IndexByte(s[i:], ')')
		if s[i+1] != '(' || end < 0 {
			b.WriteByte('$')
			continue
		}
		if value, ok := env[s[i+2:i+end]]; ok {
			b.WriteString(value)
		} else {
			b.WriteString(s[i : i+end+1])
		}
		i += end
	}
	return b.String()
}

// ExpandAll applies Expand to each element of a list, with variables as name=value.
func ExpandAll(list, env []string) []string {
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Expand(s, values)
	}
	return out
}
