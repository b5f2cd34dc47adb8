package normal

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// MergeMesh puts one mesh configuration (YAML) over another that several revisions have in common: each field as a whole, but for defaultConfig and
// defaultProviders, whose own fields are put over the others (of defaultConfig.proxyMetadata each key), extensionProviders, which are joined by name,
// and trustDomainAliases, which are all of both (istio: pkg/config/mesh/mesh.go, ApplyMeshConfig). The result is YAML (JSON). An error: one of
// them is no YAML object.
func MergeMesh(shared, own string) (string, error) {
	under, err := meshFields(shared)
	if err != nil {
		return "", err
	}
	over, err := meshFields(own)
	if err != nil {
		return "", err
	}
	merged := maps.Clone(under)
	for key, value := range over {
		before, both := under[key]
		switch {
		case !both || before == nil:
			merged[key] = value
		case key == "defaultConfig", key == "defaultProviders":
			merged[key] = mergeFields(before, value)
		case key == "extensionProviders":
			merged[key] = mergeProviders(before, value)
		case key == "trustDomainAliases":
			merged[key] = mergeTexts(before, value)
		default:
			merged[key] = value
		}
	}
	raw, err := json.Marshal(merged)
	return string(raw), err
}

// meshFields are the fields of a mesh configuration, by their JSON names.
func meshFields(text string) (map[string]any, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	return camelKeys(fields), nil
}

// camelKeys is fields by their JSON names: those of the proto file are allowed too.
func camelKeys(fields map[string]any) map[string]any {
	out := make(map[string]any, len(fields))
	for key, value := range fields {
		first, rest, _ := strings.Cut(key, "_")
		for part := range strings.SplitSeq(rest, "_") {
			if part != "" {
				first += strings.ToUpper(part[:1]) + part[1:]
			}
		}
		out[first] = value
	}
	return out
}

// mergeFields puts the fields of one message over those of another; what is no message replaces, and is reported where it is read.
func mergeFields(under, over any) any {
	a, isA := under.(map[string]any)
	b, isB := over.(map[string]any)
	if !isA || !isB {
		return over
	}
	a, b = camelKeys(a), camelKeys(b)
	const metadata = "proxyMetadata"
	before, isA := a[metadata].(map[string]any)
	after, isB := b[metadata].(map[string]any)
	maps.Copy(a, b)
	if isA && isB {
		both := maps.Clone(before)
		maps.Copy(both, after)
		a[metadata] = both
	}
	return a
}

// mergeProviders joins lists of providers by name: the later one of a name replaces the first, in its place.
func mergeProviders(under, over any) any {
	a, isA := under.([]any)
	b, isB := over.([]any)
	if !isA || !isB {
		return over
	}
	nameOf := func(p any) any {
		fields, _ := p.(map[string]any)
		return fields["name"]
	}
	all := slices.Clone(a)
	for _, p := range b {
		if i := slices.IndexFunc(all, func(have any) bool { return nameOf(p) != nil && nameOf(have) == nameOf(p) }); i >= 0 {
			all[i] = p
		} else {
			all = append(all, p)
		}
	}
	return all
}

// mergeTexts is all texts of both lists, sorted, each once.
func mergeTexts(under, over any) any {
	a, isA := under.([]any)
	b, isB := over.([]any)
	if !isA || !isB {
		return over
	}
	var all []string
	for _, one := range slices.Concat(a, b) {
		text, is := one.(string)
		if !is {
			return over
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
