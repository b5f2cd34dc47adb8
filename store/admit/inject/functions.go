package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// refused lists functions of sprig with a varying result or a long execution. HermeticTxtFuncMap already omits the
// functions that sprig itself declares not repeatable. A template that names an omitted function does not parse.
var refused = []string{"bcrypt", "htpasswd", "derivePassword", "buildCustomCert", "encryptAES", "decryptAES", "randInt", "shuffle",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "ago"}

// functions returns the functions that templates may call. They are sprig's functions, and functions with the names and
// results of those of Istio's injector (istio: pkg/kube/inject/template.go). Their results are bounded. The parameter
// env returns the values of environment variables. If it is nil, all variables are unset.
func functions(env func(string) string) template.FuncMap {
	all := sprig.HermeticTxtFuncMap()
	for _, name := range refused {
		delete(all, name)
	}
	all["print"], all["printf"], all["println"] = fmt.Sprint, fmt.Sprintf, fmt.Sprintln
	boundCounts(all)
	for name, f := range (template.FuncMap{
		"annotation":             annotationOf,
		"appendMultusNetwork":    appendMultusNetwork,
		"applicationPorts":       applicationPorts,
		"contains":               func(part, text string) bool { return strings.Contains(text, part) },
		"env":                    variableOf(env),
		"directory":              func(name string) string { dir, _ := path.Split(name); return dir },
		"excludeInboundPort":     excludeInboundPort,
		"excludeInterfaces":      func(s string) string { return s },
		"formatDuration":         func(d *durationpb.Duration) string { return d.AsDuration().String() },
		"fromJSON":               fromJSON,
		"includeInboundPorts":    includeInboundPorts,
		"indent":                 indent,
		"isset":                  func(m map[string]string, key string) bool { _, there := m[key]; return there },
		"kubevirtInterfaces":     func(s string) string { return s },
		"mergeMaps":              mergeMaps,
		"omit":                   omit,
		"omitNil":                omitNil,
		"otelResourceAttributes": otelResourceAttributes,
		"protoToJSON":            protoToJSON,
		"strdict":                strdict,
		"structToJSON":           toJSON,
		"toJSON":                 toJSON,
		"toJson":                 toJSON,
		"toJsonMap":              func(all ...map[string]string) (string, error) { return toJSON(mergeMaps(all...)) },
		"toLower":                strings.ToLower,
		"toYaml":                 toYAML,
		"valueOrDefault":         valueOrDefault,
	}) {
		all[name] = f
	}
	return limited(all)
}

// readable lists the prefixes of environment variables that templates may read. Istio's templates read variables with
// these prefixes from istiod's environment. Other variables may contain secrets.
var readable = []string{"ENABLE_", "ISTIO_", "PILOT_"}

// variableOf returns the template function env. For an unset or empty variable, the template function returns its
// second argument. It fails for a name without one of the prefixes in readable.
func variableOf(env func(string) string) func(name, otherwise string) (string, error) {
	return func(name, otherwise string) (string, error) {
		if !slices.ContainsFunc(readable, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return "", fmt.Errorf("variable %.100q: templates may read only variables that begin with %s", name, strings.Join(readable, ", "))
		}
		if env == nil {
			return otherwise, nil
		}
		return cmp.Or(env(name), otherwise), nil
	}
}

func annotationOf(meta metav1.ObjectMeta, name string, otherwise any) string {
	if value, there := meta.Annotations[name]; there {
		return value
	}
	return fmt.Sprint(otherwise)
}

func valueOrDefault(value, otherwise any) any {
	if value == nil || value == "" {
		return otherwise
	}
	return value
}

// excludeInboundPort adds a port to a list of ports that are separated by commas. For an empty port and for 0 it
// returns the list unchanged.
func excludeInboundPort(port any, list string) string {
	added := strings.TrimSpace(fmt.Sprint(port))
	if added == "" || added == "0" {
		return list
	}
	var all []string
	for p := range strings.SplitSeq(list, ",") {
		if p = strings.TrimSpace(p); p == added {
			return list
		} else if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(append(all, added), ",")
}

// indent indents all lines except the first.
func indent(spaces int, text string) (string, error) {
	if spaces < 0 || spaces*strings.Count(text, "\n") > maxText {
		return "", errLarge
	}
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", spaces)), nil
}

func applicationPorts(list []corev1.Container) string {
	return includeInboundPorts(slices.DeleteFunc(slices.Clone(list), func(c corev1.Container) bool { return c.Name == ProxyContainer }))
}

func includeInboundPorts(list []corev1.Container) string {
	var all []string
	for _, c := range list {
		for _, p := range c.Ports {
			if p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP {
				all = append(all, strconv.Itoa(int(p.ContainerPort)))
			}
		}
	}
	return strings.Join(all, ",")
}

// appendMultusNetwork adds a network (NAMESPACE/NAME or NAME) to the value of Multus's annotation. The value is a list
// that is separated by commas, or a JSON list of objects. In an object, the namespace is a separate field. A list that
// already contains the network is returned unchanged.
func appendMultusNetwork(list, network string) (string, error) {
	if strings.TrimSpace(list) == "" {
		return network, nil
	}
	end := strings.LastIndex(list, "]")
	if end < 0 {
		for n := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(n) == network {
				return list, nil
			}
		}
		return list + ", " + network, nil
	}
	type one struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	var there []one
	if err := json.Unmarshal([]byte(list), &there); err != nil {
		return "", fmt.Errorf("the list of networks %.100q: %w", list, err)
	}
	var added one
	object := ""
	if namespace, name, apart := strings.Cut(network, "/"); apart {
		added = one{Name: name, Namespace: namespace}
		object = fmt.Sprintf(`{"name": %q, "namespace": %q}`, name, namespace)
	} else {
		added = one{Name: network}
		object = fmt.Sprintf(`{"name": %q}`, network)
	}
	if slices.Contains(there, added) {
		return list, nil
	}
	if len(there) > 0 {
		object = ", " + object
	}
	return list[:end] + object + list[end:], nil
}

// toJSON encodes a value as JSON. As in Istio, the result is {} in place of null.
func toJSON(value any) (string, error) {
	out, err := json.Marshal(value)
	if err == nil && string(out) == "null" {
		return "{}", nil
	}
	return string(out), err
}

func fromJSON(text string) (out any, err error) {
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("%.100q is not JSON: %w", text, err)
	}
	return out, nil
}

// mergeMaps joins maps. If several maps have a key, the value in the last of them stays.
func mergeMaps(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// omit copies a map without some keys. Like Istio's function, it accepts a map of strings. Like sprig's function, it
// accepts a map of any values.
func omit(from any, keys ...string) (any, error) {
	switch m := from.(type) {
	case map[string]string:
		return without(m, keys), nil
	case map[string]any:
		return without(m, keys), nil
	default:
		return nil, fmt.Errorf("%T is not a map whose keys can be omitted", from)
	}
}

func without[V any](from map[string]V, keys []string) map[string]V {
	out := maps.Clone(from)
	for _, key := range keys {
		delete(out, key)
	}
	return out
}

// strdict makes a map of strings from alternating keys and values. If the last key has no value, its value is empty.
func strdict(pairs ...string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		out[pair[0]] = strings.Join(pair[1:], "")
	}
	return out
}

// omitNil returns a copy of a JSON value, without null values. Maps and lists that contain only null values are removed
// too.
func omitNil(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, one := range v {
			if one = omitNil(one); one != nil {
				out[name] = one
			}
		}
		if len(out) == 0 && len(v) > 0 {
			return nil
		}
		return out
	case []any:
		out := []any{}
		for _, one := range v {
			if one = omitNil(one); one != nil {
				out = append(out, one)
			}
		}
		if len(out) == 0 && len(v) > 0 {
			return nil
		}
		return out
	default:
		return value
	}
}

func toYAML(value any) (string, error) {
	out, err := yaml.Marshal(value)
	return string(out), err
}

// protoToJSON encodes a message as JSON. In a ProxyConfig, it omits default values, so that Pods stay small.
func protoToJSON(m proto.Message) (string, error) {
	if c, is := m.(*meshv1alpha1.ProxyConfig); is {
		if c == nil {
			return "{}", nil
		}
		m = withoutDefaults(c)
	}
	out, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	var compact bytes.Buffer // protojson inserts spaces at random
	err = json.Compact(&compact, out)
	return compact.String(), err
}
