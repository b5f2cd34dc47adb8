package status

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Addresses are written as a whole if they differ, and the rest of the status stays.
func TestAddresses(t *testing.T) {
	key := Key{"shop", "e"}
	want := Addresses(map[Key]map[string][]string{key: {"b": {"240.240.0.2"}, "a": {"240.240.0.1", "2001:2::1"}}, {"shop", "none"}: {}})
	if len(want) != 1 {
		t.Fatalf("wanted are %v", want)
	}
	const all = `[{"host":"a","value":"240.240.0.1"},{"host":"a","value":"2001:2::1"},{"host":"b","value":"240.240.0.2"}]`
	for name, c := range map[string]struct{ there, becomes string }{
		"no status":       {`{}`, `{"addresses":` + all + `}`},
		"another one's":   {`{"status":{"conditions":[{"type":"Other"}],"more":1}}`, `{"addresses":` + all + `,"conditions":[{"type":"Other"}],"more":1}`},
		"others":          {`{"status":{"addresses":[{"value":"240.240.0.9","host":"a"}]}}`, `{"addresses":` + all + `}`},
		"one too many":    {`{"status":{"addresses":` + all[:len(all)-1] + `,{"host":"gone","value":"240.240.0.7"}]}}`, `{"addresses":` + all + `}`},
		"the same":        {`{"status":{"addresses":` + all + `}}`, ""},
		"in other order":  {`{"status":{"addresses":[{"value":"240.240.0.2","host":"B"},{"value":"240.240.0.1","host":"a"},{"value":"2001:2::1","host":"a"}]}}`, ""},
		"not a status":    {`{"status":"x"}`, ""},
		"it is not there": {"", ""},
		"no list":         {`{"status":{"addresses":{}}}`, `{"addresses":` + all + `}`},
	} {
		var there *unstructured.Unstructured
		if c.there != "" {
			there = &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(c.there), &there.Object); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := json.Marshal(there)
		got, next := "", want[key].Draw(there, 1)
		if next != nil {
			raw, err := json.Marshal(next.Object["status"])
			if err != nil {
				t.Fatal(err)
			}
			got = string(raw)
		}
		if got != c.becomes {
			t.Errorf("%s: %s, want %s", name, got, c.becomes)
		}
		if after, _ := json.Marshal(there); string(after) != string(before) {
			t.Errorf("%s: what is there was changed: %s", name, after)
		}
	}
}
