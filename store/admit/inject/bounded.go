package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"text/template"
	"text/template/parse"
)

// Bounds for rendering templates. They limit work, not time, so that a template has the same result on every machine.
const (
	maxOutput    = 1 << 20 // bytes: etcd accepts no object of 1.5 MiB
	maxSteps     = 200_000 // texts, values, iterations of loops and calls of other templates
	maxText      = 1 << 20 // bytes of a string that a function returns
	maxElements  = 100_000 // elements of a list or map that a function returns
	maxTemplates = 16      // templates of one Pod
)

var (
	errOutput = fmt.Errorf("the template's output has more than %d bytes", maxOutput)
	errSteps  = fmt.Errorf("the template needs more than %d steps (texts, values, iterations of loops and calls of other templates)", maxSteps)
)

// parseTemplate parses a template, and adds an empty text to each loop body and to each template (mark). The writer
// (bounded) receives these texts too, so it counts iterations and calls of templates.
func parseTemplate(name, text string, funcs template.FuncMap) (*template.Template, error) {
	t, err := template.New(name).Funcs(funcs).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, each := range t.Templates() {
		if each.Tree != nil && each.Root != nil {
			markLoops(each.Root)
			mark(each.Root)
		}
	}
	return t, nil
}

func mark(list *parse.ListNode) {
	list.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText, Pos: list.Pos}}, list.Nodes...)
}

// markLoops marks the bodies of all loops below a list.
func markLoops(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.RangeNode:
			markLoops(n.List)
			markLoops(n.ElseList)
			mark(n.List)
		case *parse.IfNode:
			markLoops(n.List)
			markLoops(n.ElseList)
		case *parse.WithNode:
			markLoops(n.List)
			markLoops(n.ElseList)
		}
	}
}

// bounded is the writer for the output of a template. It fails beyond the bounds, or when the context has ended.
type bounded struct {
	bytes.Buffer
	ctx   context.Context
	steps int
}

// Write implements io.Writer. It fails after maxSteps writes, beyond maxOutput bytes, and once the context has ended.
func (b *bounded) Write(p []byte) (int, error) {
	if b.steps++; b.steps > maxSteps {
		return 0, errSteps
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.Len()+len(p) > maxOutput {
		return 0, errOutput
	}
	return b.Buffer.Write(p)
}

var (
	errorType = reflect.TypeFor[error]()
	errLarge  = errors.New("its result is too large")
)

// limited wraps functions, which fail if their result is too large. The results of repeated calls therefore cannot grow
// without bound. The result is checked after the call. For some functions, boundCounts also checks the arguments before
// the call.
func limited(all template.FuncMap) template.FuncMap {
	out := template.FuncMap{}
	for name, f := range all {
		out[name] = limit(f)
	}
	return out
}

func limit(f any) any {
	v := reflect.ValueOf(f)
	t := v.Type()
	var in []reflect.Type
	for p := range t.Ins() {
		in = append(in, p)
	}
	limited := func(args []reflect.Value) []reflect.Value {
		var results []reflect.Value
		if t.IsVariadic() {
			results = v.CallSlice(args)
		} else {
			results = v.Call(args)
		}
		failed := reflect.Zero(errorType)
		if len(results) == 2 {
			failed = results[1]
		}
		if tooLarge(results[0]) {
			return []reflect.Value{reflect.Zero(t.Out(0)), reflect.ValueOf(&errLarge).Elem()}
		}
		return []reflect.Value{results[0], failed}
	}
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{t.Out(0), errorType}, t.IsVariadic()), limited).Interface()
}

func tooLarge(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return v.Len() > maxText
	case reflect.Slice, reflect.Map, reflect.Array:
		return v.Len() > maxElements
	default:
		return false
	}
}

// atMost wraps a function of sprig. The wrapper fails before the call if the result would be larger than maxSize. The
// function count computes the size of the result from the arguments.
func atMost(f any, maxSize int, count func(args []reflect.Value) int) any {
	v := reflect.ValueOf(f)
	t := v.Type()
	var in []reflect.Type
	for p := range t.Ins() {
		in = append(in, p)
	}
	checked := func(args []reflect.Value) []reflect.Value {
		if n := count(args); n > maxSize {
			return []reflect.Value{reflect.Zero(t.Out(0)), reflect.ValueOf(&errLarge).Elem()}
		}
		results := v.Call(args)
		if len(results) == 1 {
			results = append(results, reflect.Zero(errorType))
		}
		return results
	}
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{t.Out(0), errorType}, false), checked).Interface()
}
