package scan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Every value counts, whatever its key is and however often that is repeated.
// Promise: security-admission.md#expensive-objects
func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		`null`: 1, ` {} `: 1, `[]`: 1, `[[],{}]`: 3, `{"a":1,"a":[2,3]}`: 5, `"a\"\u00e9\\"`: 1, `-0.5e+7`: 1, "[\"\xff\",true,false]": 4,
		`[` + strings.Repeat(`{},`, 1000) + `0]`: 1002, strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth): MaxDepth,
	} {
		if got, err := Values([]byte(text)); got != want || err != nil {
			t.Errorf("%.40s: %d values, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "[", "[1,]", "{", `{"a"}`, `{"a":}`, `{a:1}`, "01", "1.", "-", "1e", `"`, `"\x"`, `"\u12g4"`, "\"\n\"", "nul", "[] []", "[1 2]", "]",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)} {
		if got, err := Values([]byte(text)); err == nil {
			t.Errorf("%.40q is valid and has %d values", text, got)
		}
	}
}

// The elements of a list are counted without those below.
func TestElements(t *testing.T) {
	for text, want := range map[string]int{"[]": 0, " null ": 0, `[1, [2, 3], {"a": [4]}]`: 3} {
		if got, err := Elements([]byte(text)); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"{}", "1", "[", "[] 1", ""} {
		if n, err := Elements([]byte(text)); err == nil {
			t.Errorf("%q has %d elements", text, n)
		}
	}
}

// A scanner that descends into some members counts the values of all of them.
func TestObject(t *testing.T) {
	s := New([]byte(`{"a": [1, 2], "\u0062": {"c": "d"}, "e": 3}`))
	var seen []string
	err := s.Object(func(key string) error {
		if key != "b" {
			err := s.Skip()
			seen = append(seen, key+"="+string(s.Skipped()))
			return err
		}
		return s.Object(func(key string) error {
			seen = append(seen, key)
			return s.Skip()
		})
	})
	if got := strings.Join(seen, " "); err != nil || s.End() != nil || got != "a=[1, 2] c e=3" || s.Counted() != 7 {
		t.Errorf("%q, %d values, %v", got, s.Counted(), err)
	}
}

// Commas count outside of strings, wherever the text is divided.
// Promise: security-admission.md#expensive-objects
func TestSeparators(t *testing.T) {
	text := `{"a,b": ["\\", "\",", {}, 1], "c": ","}`
	for i := range text {
		var s Separators
		s.Add([]byte(text[:i]))
		s.Add([]byte(text[i:]))
		if s.Commas != 4 {
			t.Errorf("divided at %d: %d commas", i, s.Commas)
		}
	}
}

// decoded counts the values of a decoded tree.
func decoded(tree any) int {
	n := 1
	switch v := tree.(type) {
	case map[string]any:
		for _, e := range v {
			n += decoded(e)
		}
	case []any:
		for _, e := range v {
			n += decoded(e)
		}
	}
	return n
}

// FuzzValues: a text is valid here if and only if it is valid for encoding/json, except for the bound of nesting; the
// number of values is at least that of the decoded text.
// Promise: security-admission.md#expensive-objects
func FuzzValues(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"x\u00e9\n",true,false,null,{}]}`, `{"a":1,"a":{"b":[]}}`, "[[[[]]]]", "\"\xff\"", "0", "-", "1.e", " [ 1 , 2 ] ", "{\"a\" :1}", "tru", "[1,]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := Values(text)
		if errors.Is(err, errDepth) {
			return
		}
		if (err == nil) != json.Valid(text) {
			t.Fatalf("%q: %v, encoding/json says %v", text, err, json.Valid(text))
		}
		var commas Separators
		for _, piece := range [][]byte{text[:len(text)/2], text[len(text)/2:]} {
			commas.Add(piece)
		}
		if err == nil && commas.Commas >= n {
			t.Fatalf("%q: %d values, %d commas", text, n, commas.Commas)
		}
		var tree any
		if err == nil && json.Unmarshal(text, &tree) == nil && n < decoded(tree) {
			t.Fatalf("%q: %d values, decoded %d", text, n, decoded(tree))
		}
	})
}

// Aliases count as the values to which they refer.
// Promise: security-admission.md#expensive-objects
func TestYAML(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for _, level := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		before := "*a" + string(level[0]-1)
		bomb += "a" + level + ": &a" + level + " [" + strings.Repeat(before+", ", 9) + before + "]\n"
	}
	for text, want := range map[string]string{
		"a: {b: [1, 2], c: d}": "", "[1, 2, 3]": "", "": "", "x: &x [1, 2]\ny: [*x, *x]": "", bomb: "more than 50 values", "x: &x [*x]": "contains the alias", "[": "did not find",
		"x: &x " + strings.Repeat("x", 640) + "\ny: [*x, *x]": "", "x: &x " + strings.Repeat("x", 640) + "\ny: [*x, *x, *x, *x]": "more than 50 values",
		"[" + strings.Repeat("1, ", 50) + "1]": "more than 50 values",
	} {
		err := YAML([]byte(text), 50)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestDistinct(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, `{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]}`: true, `[1, "a"]`: true, `null`: true,
		`{"a": 1, "a": 1}`: false, `{"a": {"b": [], "b": []}}`: false, `[[{"a": 1, "\u0061": 2}]]`: false,
		``: false, `{"a": 1} {}`: false, `{"a"}`: false, `{a: 1}`: false,
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1): false,
	} {
		if got := Distinct([]byte(text)); got != want {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}
