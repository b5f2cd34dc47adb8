package normal

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// MergeMesh merges the mesh configuration of a revision (own) into the mesh configuration that several revisions share
// (shared). Both texts are YAML, and may be empty. The result is JSON.
//
// A field of the revision replaces the same field of the shared configuration, with these exceptions (istio:
// pkg/config/mesh/mesh.go, ApplyMeshConfig). The fields defaultConfig and defaultProviders are merged by field, and
// proxyMetadata by key. A provider in extensionProviders replaces the shared provider of the same name. The
// trustDomainAliases of both texts are combined, sorted, without duplicates. If one of two values to merge has an
// unexpected type, such as null, the value of the revision replaces the shared value.
//
// MergeMesh fails if a text is neither empty nor a valid YAML object. YAML with a repeated key is invalid.
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

// meshFields returns the top-level fields of a mesh configuration in YAML, by their JSON names. The result for an empty
// text is empty.
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

// camelKeys returns a copy of fields with their JSON names as keys. The keys of the input may also be the names in the
// proto file.
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

// mergeFields merges two messages by field, and their proxyMetadata by key. The second message has priority. If either
// value is not an object, the result is the second value.
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

// mergeProviders merges lists of providers by name. A provider in the second list replaces the provider with its name
// in the first list, at the same index. Other providers of the second list are appended. If either value is not a list,
// the result is the second value.
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

// mergeTexts returns the sorted union of two lists of texts. If either value is not a list of texts, the result is the
// second value.
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
