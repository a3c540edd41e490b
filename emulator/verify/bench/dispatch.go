package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// dispatches is how many tasks are created, one after another.
const dispatches = 50

// dispatchTime measures the time from the creation of a task to its request, without other load.
func dispatchTime(ctx context.Context, r run) (_ result, err error) {
	defer steps.Return(&err)
	server := steps.Value(cloudtasks.Start(ctx, cloudtasks.Options{Log: r.log}))
	defer server.Close()
	client := steps.Value(server.Client(ctx))
	defer func() { err = errors.Join(err, client.Close()) }()
	arrived := make(chan time.Time, 1)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- time.Now() }))
	defer target.Close()
	const parent = "projects/bench/locations/local1"
	queue := steps.Value(client.CreateQueue(ctx, &cloudtaskspb.CreateQueueRequest{Parent: parent, Queue: &cloudtaskspb.Queue{Name: parent + "/queues/one"}}))
	var took []float64
	for range dispatches {
		began := time.Now()
		steps.Value(client.CreateTask(ctx, &cloudtaskspb.CreateTaskRequest{Parent: queue.Name, Task: &cloudtaskspb.Task{
			MessageType: &cloudtaskspb.Task_HttpRequest{HttpRequest: &cloudtaskspb.HttpRequest{Url: target.URL}},
		}}))
		took = append(took, (<-arrived).Sub(began).Seconds())
	}
	return result{figures: figures{dispatchP50: quantile(took, 0.5)}}, nil
}
