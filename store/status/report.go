package status

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/problem"
)

// DeliveredType is the condition that says whether proxies have an object's generation.
const DeliveredType = "navarch.io/Delivered"

// Report is what the status of one generation of an object of Istio's is to say. It changes entries of its own alone: the condition
// DeliveredType, and validation messages whose code begins with NAV or whose documentationUrl says that they are ours. The CRDs have these lists as atomic ones, so they are read, merged and
// written whole, with the resourceVersion that was read.
type Report struct {
	UID        string // an object with another one, or with another generation, stays as it is
	Generation int64
	Messages   []Message // in order, each once
	Delivered  Delivered
}

// Message is a kind of problem that an object has. Texts are not of the API (AnalysisMessageBase): the condition has them.
type Message struct {
	Code     problem.Code
	Analyzer problem.Analyzer // Istio's code, which stands in the place of ours; empty: it has none
	Severity problem.Severity
}

// Delivered is the condition.
type Delivered struct {
	Status  string // True, False, Unknown
	Reason  string // CamelCase
	Message string
	Since   time.Time // when Status came to be so, where the condition says another one
	Only    Only
}

// Only says where the condition is written at all.
type Only uint8

// Where the condition is written.
const (
	Everywhere   Only = iota
	WhereUnsaid       // where there is none of this generation yet
	WherePresent      // where there is one
	Nowhere           // it stays as it is
)

// codes are those of messages: one for each code of store/problem, as AnalysisMessageBase has it. IST is Istio's.
var codes = map[problem.Code]string{
	problem.Invalid: "NAV0001", problem.Required: "NAV0002", problem.NotFound: "NAV0003", problem.Duplicate: "NAV0004",
	problem.NotSupported: "NAV0005",
	problem.NoEffect:     "NAV0006", problem.NotAllowed: "NAV0007", problem.Unreadable: "NAV0008", problem.Held: "NAV0009",
	problem.Pending: "NAV0010",
	problem.Refused: "NAV0011", problem.Internal: "NAV0012", problem.Costly: "NAV0013",
}

const codePrefix, unknownCode = "NAV", "NAV0000"

// Messages with a code of Istio's may be istiod's too. Ours are told by the end of their documentationUrl, whose beginning the API states.
const documentation, ownReference = "https://istio.io/docs/reference/config/analysis/", "/?ref=navarch"

// entry is the message as the API has it.
func (m Message) entry() map[string]any {
	level := "WARNING"
	if m.Severity == problem.Error {
		level = "ERROR"
	}
	if name := m.Analyzer.Name(); name != "" {
		return map[string]any{"type": map[string]any{"code": string(m.Analyzer), "name": name}, "level": level,
			"documentationUrl": documentation + strings.ToLower(string(m.Analyzer)) + ownReference}
	}
	code, known := codes[m.Code]
	if !known {
		code = unknownCode // a newer replica's
	}
	return map[string]any{"type": map[string]any{"code": code, "name": string(m.Code)}, "level": level}
}

// Desired is the report as a Writer takes it. Namespaces take turns: one whose objects change without end delays its own alone.
func (r Report) Desired(namespace string) Desired[unstructured.Unstructured] {
	said := r
	said.Delivered.Since = time.Time{}
	version, _ := json.Marshal(said) // texts and numbers alone
	return Desired[unstructured.Unstructured]{Version: string(version), Turn: namespace,
		Draw: func(there *unstructured.Unstructured, _ int64) *unstructured.Unstructured {
			return r.draw(there)
		}}
}

// draw merges the report into a status. What cannot be merged with, because it is no list, stays as it is.
func (r Report) draw(there *unstructured.Unstructured) *unstructured.Unstructured {
	if there == nil || string(there.GetUID()) != r.UID || there.GetGeneration() != r.Generation {
		return nil
	}
	status, is := there.Object["status"].(map[string]any)
	if !is && there.Object["status"] != nil {
		return nil
	}
	next := map[string]any{}
	for name, value := range status {
		next[name] = value
	}
	messages, conditions := false, false
	next["validationMessages"], messages = r.mergeMessages(status["validationMessages"])
	next["conditions"], conditions = r.mergeConditions(status["conditions"])
	if !messages && !conditions {
		return nil
	}
	for _, name := range []string{"validationMessages", "conditions"} {
		if list, is := next[name].([]any); next[name] == nil || is && len(list) == 0 {
			delete(next, name)
		}
	}
	next["observedGeneration"] = r.Generation
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for name, value := range there.Object {
		out.Object[name] = value
	}
	out.Object["status"] = next
	return out.DeepCopy()
}

// mergeMessages puts the report's messages after those of others; false: they are there.
func (r Report) mergeMessages(there any) (any, bool) {
	list, is := there.([]any)
	if !is && there != nil {
		return there, false
	}
	merged, have, want := []any{}, []any{}, []any{}
	for _, one := range list {
		if ownMessage(one) {
			have = append(have, one)
		} else {
			merged = append(merged, one)
		}
	}
	for _, m := range r.Messages {
		want = append(want, m.entry())
	}
	if reflect.DeepEqual(have, want) {
		return there, false
	}
	return append(merged, want...), true
}

func ownMessage(one any) bool {
	message, _ := one.(map[string]any)
	of, _ := message["type"].(map[string]any)
	code, _ := of["code"].(string)
	page, _ := message["documentationUrl"].(string)
	return strings.HasPrefix(code, codePrefix) || strings.HasSuffix(page, ownReference)
}

// mergeConditions puts the report's condition in the place of the one that is there, or behind the others; false: it is there.
func (r Report) mergeConditions(there any) (any, bool) {
	list, is := there.([]any)
	if !is && there != nil || r.Delivered.Only == Nowhere {
		return there, false
	}
	at := -1
	var was map[string]any
	for i, one := range list {
		if c, is := one.(map[string]any); is && c["type"] == DeliveredType {
			at, was = i, c
			break
		}
	}
	said := generationOf(was["observedGeneration"]) == r.Generation
	d := r.Delivered
	switch {
	case d.Only == WhereUnsaid && said, d.Only == WherePresent && was == nil:
		return there, false
	case said && was["status"] == d.Status && text(was["reason"]) == d.Reason && text(was["message"]) == d.Message:
		return there, false
	}
	condition := map[string]any{"type": DeliveredType, "status": d.Status, "reason": d.Reason, "observedGeneration": r.Generation,
		"lastTransitionTime": d.Since.UTC().Format(time.RFC3339)}
	if d.Message != "" {
		condition["message"] = d.Message
	}
	if since, is := was["lastTransitionTime"].(string); is && was["status"] == d.Status {
		condition["lastTransitionTime"] = since
	}
	merged := append([]any{}, list...)
	if at < 0 {
		return append(merged, condition), true
	}
	merged[at] = condition
	return merged, true
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// generationOf reads a generation: Istio's JSON has it as text (int64 in protobuf's JSON), the CRD takes both; -1: there is none.
func generationOf(value any) int64 {
	switch v := value.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	return -1
}
