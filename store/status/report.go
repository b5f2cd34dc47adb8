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

// DeliveredType is the type of the condition that states whether proxies have received an object's generation.
const DeliveredType = "navarch.io/Delivered"

// Report is the target status of one generation of an Istio object. It changes only entries of its own: the condition
// DeliveredType, and validation messages whose code begins with NAV or whose documentationUrl marks them as Navarch's.
// If these entries change, it also sets status.observedGeneration to Generation. The CRDs declare the lists of
// conditions and validation messages atomic. Therefore both lists are read, merged and written as a whole, with the
// resourceVersion that was read.
type Report struct {
	UID        string    // an object with another UID or another generation is not changed
	Generation int64     // metadata.generation that the report is about
	Messages   []Message // all different; written in this order after the messages of others; empty: Navarch's messages are removed
	Delivered  Delivered
}

// Message is one kind of problem of an object. The API has no field for the problem's text (AnalysisMessageBase), so
// the text is a part of Delivered.Message.
type Message struct {
	Code     problem.Code
	Analyzer problem.Analyzer // analysis code (Istio's or Navarch's), which replaces Code; empty or unknown: Code is used
	Severity problem.Severity // Error becomes level ERROR, other severities WARNING
}

// Delivered is the condition DeliveredType.
type Delivered struct {
	Status  string    // True, False or Unknown
	Reason  string    // CamelCase
	Message string    // for people; empty: no message
	Since   time.Time // lastTransitionTime, unless the object's condition already has this Status
	Only    Only      // which objects get the condition
}

// Only restricts the objects in which the condition is written.
type Only uint8

// The restrictions.
const (
	Everywhere   Only = iota
	WhereUnsaid       // only if the object has no condition DeliveredType of this generation
	WherePresent      // only if the object has the condition DeliveredType, of any generation
	Nowhere           // never
)

// codes maps each code of store/problem to a code of validation messages in the form of AnalysisMessageBase. Codes that
// begin with IST are Istio's.
var codes = map[problem.Code]string{
	problem.Invalid: "NAV0001", problem.Required: "NAV0002", problem.NotFound: "NAV0003", problem.Duplicate: "NAV0004",
	problem.NotSupported: "NAV0005",
	problem.NoEffect:     "NAV0006", problem.NotAllowed: "NAV0007", problem.Unreadable: "NAV0008", problem.Held: "NAV0009",
	problem.Pending: "NAV0010",
	problem.Refused: "NAV0011", problem.Internal: "NAV0012", problem.Costly: "NAV0013",
}

const codePrefix, unknownCode = "NAV", "NAV0000"

// A message with one of Istio's codes may be istiod's or Navarch's. The documentationUrl of such a message of Navarch
// ends with ownReference. The API prescribes the beginning of the URL.
const documentation, ownReference = "https://istio.io/docs/reference/config/analysis/", "/?ref=navarch"

// entry returns the message in the form of the API.
func (m Message) entry() map[string]any {
	level := "WARNING"
	if m.Severity == problem.Error {
		level = "ERROR"
	}
	if name := m.Analyzer.Name(); name != "" {
		entry := map[string]any{"type": map[string]any{"code": string(m.Analyzer), "name": name}, "level": level}
		if !m.Analyzer.Own() {
			entry["documentationUrl"] = documentation + strings.ToLower(string(m.Analyzer)) + ownReference
		}
		return entry
	}
	code, known := codes[m.Code]
	if !known {
		code = unknownCode // a code that a newer version has written
	}
	return map[string]any{"type": map[string]any{"code": code, "name": string(m.Code)}, "level": level}
}

// Desired returns the report as a target state for a Writer. The argument is the object's namespace, which is the owner
// for fair queueing. Therefore objects that change without end delay only objects of their namespace. An absent object
// is not created. An object with a malformed status stays unchanged. The list r.Messages must not be changed
// afterwards.
func (r Report) Desired(namespace string) Desired[unstructured.Unstructured] {
	said := r
	said.Delivered.Since = time.Time{}
	version, _ := json.Marshal(said) // texts and numbers always encode
	return Desired[unstructured.Unstructured]{Version: string(version), Turn: namespace,
		Draw: func(there *unstructured.Unstructured, _ int64) *unstructured.Unstructured {
			return r.draw(there)
		}}
}

// draw merges the report into the status of an object. It returns nil if nothing changes, if the object is absent or
// has another UID or generation, or if its status is malformed. Malformed lists stay.
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

// mergeMessages returns the list of messages with the report's messages after those of others. The second result is
// false if nothing changes.
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

// mergeConditions returns the list of conditions in which the report's condition is replaced or appended. The second
// result is false if nothing changes.
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

// generationOf parses a generation. Istio's JSON has it as text (int64 in protobuf's JSON), and the CRD accepts both.
// It returns -1 if the value is not a generation.
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
