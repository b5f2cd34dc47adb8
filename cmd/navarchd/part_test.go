package main

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loop"
)

var quiet = slog.New(slog.DiscardHandler)

// A process has the contents of all its parts. If add omitted a field, a role would never run.
func TestPartsAreJoined(t *testing.T) {
	one := func() part {
		return part{
			tasks: []loop.Task{{}}, plain: []func(grpc.ServiceRegistrar){nil}, secure: []func(grpc.ServiceRegistrar){nil}, ready: []func() error{nil},
			notes: []func() []string{nil}, gauges: []func(time.Time){nil}, leave: []func(context.Context){nil}, counts: []func() memory.Counts{nil},
		}
	}
	all := one()
	all.add(one())
	v := reflect.ValueOf(all)
	for i := range v.NumField() {
		if n := v.Field(i).Len(); n != 2 {
			t.Errorf("%s: %d of two parts", v.Type().Field(i).Name, n)
		}
	}
}

// Once a role is made, none of its fields is missing, and no list contains an absent part.
func TestRolesHaveAllTheirFields(t *testing.T) {
	etcd := kvtest.Start(t)
	c := &config{roles: []string{"xds"}, trustDomain: "cluster.local", env: environment{podName: "a"}}
	for _, role := range []any{leastIngester(t, etcd.Connect()), leastReplica(t, c, etcd.Connect())} {
		v := reflect.ValueOf(role).Elem()
		for _, field := range reflect.VisibleFields(v.Type()) {
			switch f := v.FieldByIndex(field.Index); f.Kind() {
			case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Map, reflect.Chan:
				if f.IsNil() {
					t.Errorf("%s.%s is nil", v.Type(), field.Name)
				}
			}
		}
	}
}

// A process is ready when all of its parts are; otherwise the first part that is not ready gives the reason. The notes
// are those of all parts.
func TestPartsAreAsked(t *testing.T) {
	var first, second error
	note := func(text string) part {
		return part{notes: []func() []string{func() []string { return []string{text} }}}
	}
	all := part{}
	if all.missing() != nil || all.remarks() != nil {
		t.Error("a process of nothing is not ready")
	}
	all.add(note("a"))
	all.add(part{ready: []func() error{func() error { return first }}})
	all.add(part{ready: []func() error{func() error { return second }}})
	all.add(note("b"))
	if err := all.missing(); err != nil {
		t.Error(err)
	}
	if second = errors.New("second"); !errors.Is(all.missing(), second) {
		t.Error("the second is not asked")
	}
	if first = errors.New("first"); !errors.Is(all.missing(), first) {
		t.Error("the first is not told")
	}
	all.add(part{counts: []func() memory.Counts{func() memory.Counts { return memory.Counts{Bursts: 3, Edits: 10} }}})
	all.add(part{counts: []func() memory.Counts{func() memory.Counts { return memory.Counts{Bursts: 4, Edits: 20} }}})
	if got := all.workDone(); got != (memory.Counts{Bursts: 7, Edits: 30}) {
		t.Errorf("%+v done, want that of both", got)
	}
	if got := all.remarks(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("notes %q", got)
	}
}
