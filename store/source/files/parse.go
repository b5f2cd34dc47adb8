package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/scan"
)

// Limits of the input, in bytes. A YAML document has a further limit for its size with aliases expanded (maxExpanded).
const (
	maxDocument = 4 << 20 // of a document, and of its JSON
	maxFile     = 64 << 20
	maxExpanded = 64 << 20
	// aliasGrowth bounds the factor by which each alias enlarges a document. k aliases of one anchor enlarge the
	// document at most k times. The factor for each of these aliases is therefore k^(1/k), which is at most e^(1/e).
	aliasGrowth = 1.4447
)

// doc is one document of a file: an object, or the known parts of a broken one.
type doc struct {
	object   *object.Object
	id       object.ID // of the object; for a broken document, only the fields that could be read
	location string
	wrong    string // reason for which the document is broken; empty: the document is valid
	foreign  bool   // a JSON document that is certainly not a Kubernetes object
}

// fault describes a broken document: its location, the ID of its object as far as it could be read, and the reason.
func (d doc) fault() string {
	if d.id.Kind == "" {
		return d.location + ": " + d.wrong
	}
	return fmt.Sprintf("%s: %v: %s", d.location, d.id, d.wrong)
}

// parse parses all documents of one file. The path is relative to the folder. The parameter config is the name of the
// config cluster.
func parse(config, path string, data []byte) []doc { return parseUnder(config, "", path, data) }

// parseUnder parses like parse, but the path of the file begins with base, the path of the folder. If base is empty,
// the path is relative to the folder.
func parseUnder(config, base, path string, data []byte) []doc {
	from, err := originOf(config, strings.TrimPrefix(strings.TrimPrefix(path, base), "/"))
	if err != nil {
		return []doc{{location: path, wrong: err.Error()}}
	}
	docs := documents(path, data)
	for i := range docs {
		docs[i].id.Origin = from
		if docs[i].object != nil {
			docs[i].object.ID.Origin = from
		}
	}
	return docs
}

// clusterFolder is the prefix of top-level folders with objects of other clusters than the config cluster.
const clusterFolder = "cluster="

// originOf returns the origin of a file's objects. Files below the top-level folder cluster=NAME belong to cluster
// NAME, and all other files to the config cluster. An error means that NAME is not a valid name of a cluster.
func originOf(config, path string) (origin.Origin, error) {
	folder, _, below := strings.Cut(path, "/")
	name, is := strings.CutPrefix(folder, clusterFolder)
	if !is || !below {
		return origin.New("", origin.Files), nil
	}
	if err := origin.CheckCluster(name); err != nil {
		return origin.Origin{}, fmt.Errorf("folder %.300q: %w", folder, err)
	}
	if name == config {
		name = ""
	}
	return origin.New(name, origin.Files), nil
}

func documents(path string, data []byte) []doc {
	if len(data) > maxFile {
		return []doc{{location: path, wrong: fmt.Sprintf("the file has %d bytes, more than %d", len(data), maxFile)}}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	parts := split(path, data)
	docs := make([][]doc, len(parts))
	loop.Each(len(parts), func(i int) { docs[i] = ofPart(path, i+1, parts[i]) })
	return slices.Concat(docs...)
}

// ofPart parses one document of a file, and returns the object, or the objects of a List. A blank document yields nil.
func ofPart(path string, number int, raw rawDoc) []doc {
	location := path + "#" + strconv.Itoa(number)
	if raw.wrong != "" {
		return []doc{broken(location, raw.data, raw.wrong)}
	}
	if blank(raw.data) {
		return nil
	}
	tree, err := toJSON(raw.data)
	switch {
	case err != nil:
		return []doc{broken(location, raw.data, inFile(err.Error(), raw.line))}
	case string(tree) == "null": // the document has only comments
		return nil
	case strings.HasSuffix(path, ".json") && foreign(tree):
		return []doc{{location: location, foreign: true}}
	}
	return objects(location, tree)
}

// foreign reports whether JSON is certainly neither a Kubernetes object nor a part of one. Such JSON lacks all of an
// object's typical fields. The comparison of field names ignores case.
func foreign(tree []byte) bool {
	var list []json.RawMessage
	if bytes.HasPrefix(tree, []byte("[")) && json.Unmarshal(tree, &list) == nil {
		return !slices.ContainsFunc(list, func(one json.RawMessage) bool { return !foreign(one) })
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(tree, &fields) != nil {
		return true // a number or a text
	}
	for name := range fields {
		switch strings.ToLower(name) {
		case "apiversion", "kind", "spec", "items":
			return false
		}
	}
	var metadata map[string]json.RawMessage
	return json.Unmarshal(fields["metadata"], &metadata) != nil || metadata["name"] == nil
}

var (
	anchor  = regexp.MustCompile(`(?m)(?:^|[\s,\[{])&[^\s&,\[\]{}]`)
	alias   = regexp.MustCompile(`[\s,\[{:]\*[^\s*,\]}]`)
	tab     = regexp.MustCompile(`(?m)^ *\t`)
	notYAML = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s*)?`)
)

// toJSON converts one YAML (or JSON) document. Errors: a repeated key, invalid YAML, or a size beyond the limits.
func toJSON(data []byte) (tree []byte, err error) {
	if len(data) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes, more than %d", len(data), maxDocument)
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("the document has a NUL byte: the file is not text, or not all of it was written")
	}
	if plain := bytes.TrimSpace(data); bytes.HasPrefix(plain, []byte("{")) && utf8.Valid(plain) && scan.Distinct(plain) {
		var tree bytes.Buffer // reading JSON as YAML takes many times as long
		err := json.Compact(&tree, plain)
		return bytes.Clone(tree.Bytes()), err
	}
	if tree, is := plainJSON(data); is && len(tree) <= maxDocument {
		return tree, nil
	}
	if bytes.IndexByte(data, '&') >= 0 && anchor.Match(data) { // the expression takes a fifth of the time of the parser
		if n := len(alias.FindAllIndex(data, -1)); float64(len(data))*math.Pow(aliasGrowth, float64(n)) > maxExpanded {
			return nil, fmt.Errorf("the document has %d aliases: too many for its size", n)
		}
	}
	defer func() {
		if p := recover(); p != nil { // the YAML library may panic, and one file must not end the process
			tree, err = nil, fmt.Errorf("is no YAML: %v", p)
		}
	}()
	tree, err = yaml.YAMLToJSONStrict(data)
	if err != nil {
		text := strings.Join(strings.Fields(notYAML.ReplaceAllString(err.Error(), "")), " ")
		if strings.Contains(text, "cannot start any token") && tab.Match(data) {
			text += " (a tab: YAML is indented by spaces)"
		}
		return nil, errors.New("is no YAML: " + text)
	}
	if len(tree) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes with its aliases resolved, more than %d", len(tree), maxDocument)
	}
	return tree, nil
}

// head contains the fields at the start of every Kubernetes object.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name              string            `json:"name"`
		GenerateName      string            `json:"generateName"`
		Namespace         string            `json:"namespace"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		CreationTimestamp *time.Time        `json:"creationTimestamp"`
		UID               string            `json:"uid"`
		Generation        int64             `json:"generation"`
	} `json:"metadata"`
}

// objects parses one document into its object, or the objects of a List.
func objects(location string, tree []byte) []doc {
	var h head
	err := json.Unmarshal(tree, &h)
	if err == nil && strings.HasSuffix(h.Kind, "List") && h.APIVersion != "" {
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(tree, &list); err != nil {
			return []doc{broken(location, tree, misfit(err))}
		}
		var docs []doc
		for i, item := range list.Items {
			var one head
			err := json.Unmarshal(item, &one)
			docs = append(docs, single(fmt.Sprintf("%s.items[%d]", location, i), item, one, err))
		}
		return docs
	}
	return []doc{single(location, tree, h, err)}
}

// misfit names the field whose type is wrong for an object.
func misfit(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	if wrong.Field == "" {
		return fmt.Sprintf("is no object but a YAML %s", wrong.Value)
	}
	if wrong.Type.Kind() == reflect.String {
		return fmt.Sprintf("%s must be a string, not a %s (put it in quotes)", wrong.Field, wrong.Value)
	}
	return fmt.Sprintf("%s must not be a %s", wrong.Field, wrong.Value)
}

// clusterScoped lists the cluster-scoped kinds that a folder is likely to contain.
var clusterScoped = map[string]bool{"Namespace": true, "Node": true, "PersistentVolume": true,
	"ClusterRole": true, "ClusterRoleBinding": true, "CustomResourceDefinition": true, "GatewayClass": true, "IngressClass": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true, "StorageClass": true, "PriorityClass": true}

// single returns the doc of one object. h and err are the result of decoding tree.
func single(location string, tree []byte, h head, err error) doc {
	id := h.id() // the valid fields are set even after an error
	switch {
	case err != nil:
		return doc{id: id, location: location, wrong: misfit(err)}
	case h.APIVersion == "":
		return doc{id: id, location: location, wrong: "apiVersion is missing"}
	case h.Kind == "":
		return doc{id: id, location: location, wrong: "kind is missing"}
	}
	if wrong := h.misnamed(); wrong != "" {
		id.Namespace, id.Name = printable(id.Namespace), printable(id.Name)
		return doc{id: id, location: location, wrong: wrong}
	}
	o := &object.Object{ID: id, Labels: h.Metadata.Labels, Annotations: h.Metadata.Annotations, JSON: tree, Location: location,
		UID: h.Metadata.UID, Generation: h.Metadata.Generation}
	_, o.Version = cutLast(h.APIVersion)
	if t := h.Metadata.CreationTimestamp; t != nil {
		o.Created = *t
	}
	return doc{object: o, id: id, location: location}
}

// defaultNamespace is the namespace of namespaced objects that state no namespace.
const defaultNamespace = "default"

// id returns the object's ID. A namespaced object that states no namespace is in default, as with kubectl.
func (h head) id() object.ID {
	group, _ := cutLast(h.APIVersion)
	id := object.ID{Group: group, Kind: h.Kind, Namespace: h.Metadata.Namespace, Name: h.Metadata.Name}
	if clusterScoped[h.Kind] {
		id.Namespace = ""
	} else if id.Namespace == "" && h.Kind != "" {
		id.Namespace = defaultNamespace
	}
	return id
}

// cutLast splits group/version. The core group has an empty name.
func cutLast(apiVersion string) (group, version string) {
	if g, v, found := strings.Cut(apiVersion, "/"); found {
		return g, v
	}
	return "", apiVersion
}

var (
	lineKind = regexp.MustCompile(`(?m)^\s*"?kind"?:\s*"?([A-Za-z]+)"?,?\s*$`)
	lineAPI  = regexp.MustCompile(`(?m)^\s*"?apiVersion"?:\s*"?([a-z0-9./-]+)"?,?\s*$`)
	lineName = regexp.MustCompile(`(?m)^\s+"?name"?:\s*"?([A-Za-z0-9.-]+)"?,?\s*$`)
	lineNS   = regexp.MustCompile(`(?m)^\s+"?namespace"?:\s*"?([a-z0-9-]+)"?,?\s*$`)
	// The same fields within braces on one line, as in JSON.
	flowKind = regexp.MustCompile(`[{,]\s*"kind"\s*:\s*"([A-Za-z]+)"`)
	flowAPI  = regexp.MustCompile(`[{,]\s*"apiVersion"\s*:\s*"([a-z0-9./-]+)"`)
	flowName = regexp.MustCompile(`"?metadata"?\s*:\s*\{(?:[^{}]*?,)??\s*"?name"?\s*:\s*"?([A-Za-z0-9.-]+)`)
	flowNS   = regexp.MustCompile(`"?metadata"?\s*:\s*\{(?:[^{}]*?,)??\s*"?namespace"?\s*:\s*"?([a-z0-9-]+)`)
)

// broken returns the doc of a document that cannot be read. It searches the text for the object's identity. Messages
// name the object. The ingester needs the identity too, because it closes the workloads of a policy that was never
// readable.
func broken(location string, data []byte, wrong string) doc {
	d := doc{location: location, wrong: wrong}
	if len(data) > maxDocument {
		data = data[:maxDocument]
	}
	first := func(exprs ...*regexp.Regexp) string {
		for _, expr := range exprs {
			if m := expr.FindSubmatch(data); m != nil {
				return string(m[1])
			}
		}
		return ""
	}
	h := head{APIVersion: first(lineAPI, flowAPI), Kind: first(lineKind, flowKind)}
	h.Metadata.Name, h.Metadata.Namespace = first(flowName, lineName), first(flowNS, lineNS)
	if d.id = h.id(); h.Kind == "" || h.Metadata.Name == "" || h.APIVersion == "" {
		d.id = object.ID{Group: d.id.Group, Kind: d.id.Kind, Namespace: h.Metadata.Namespace}
	}
	return d
}
