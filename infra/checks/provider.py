#!/usr/bin/env python3
"""Stands in for the provider hashicorp/aws where no Terraform registry can be reached.

It serves the schema that schema.py printed and nothing else, so that `terraform validate` knows
every argument, and `terraform test` can plan with mock_provider. It cannot plan by itself, reach
AWS, or judge values. Terraform starts it (dev_overrides, TF_DISABLE_PLUGIN_TLS=1).
"""
import json
import os
import threading
from concurrent import futures

import grpc
from tf.gen import grpc_controller_pb2 as control_messages
from tf.gen import grpc_controller_pb2_grpc as control_service
from tf.gen import tfplugin_pb2 as messages
from tf.gen import tfplugin_pb2_grpc as service

Nesting = messages.Schema.NestedBlock.NestingMode


def block(shown):
    out = messages.Schema.Block()
    for name, one in sorted(shown["attributes"].items()):
        words = {word: one.get(word, False) for word in ("required", "optional", "computed")}
        out.attributes.add(name=name, type=json.dumps(one["type"]).encode(), **words)
    for name, one in sorted(shown["blocks"].items()):
        out.block_types.add(
            type_name=name,
            block=block(one),
            nesting=Nesting.Value(one["nesting"].upper()),
            min_items=one["min"],
            max_items=one["max"],
        )
    return out


def schemas(shown):
    return {name: messages.Schema(block=block(one)) for name, one in shown.items()}


def refusal():
    text = "this provider only knows the schema: use mock_provider in a test"
    return [messages.Diagnostic(severity=messages.Diagnostic.ERROR, summary=text)]


class Provider(service.ProviderServicer):
    def __init__(self, schema):
        self.schema = schema

    def GetMetadata(self, request, context):
        of = messages.GetMetadata
        return of.Response(
            resources=[of.ResourceMetadata(type_name=n) for n in self.schema["Resource"]],
            data_sources=[of.DataSourceMetadata(type_name=n) for n in self.schema["DataSource"]],
        )

    def GetProviderSchema(self, request, context):
        return messages.GetProviderSchema.Response(
            provider=messages.Schema(block=block(self.schema["provider"])),
            resource_schemas=schemas(self.schema["Resource"]),
            data_source_schemas=schemas(self.schema["DataSource"]),
        )

    def ValidateProviderConfig(self, request, context):
        return messages.ValidateProviderConfig.Response()

    def ValidateResourceConfig(self, request, context):
        return messages.ValidateResourceConfig.Response()

    def ValidateDataResourceConfig(self, request, context):
        return messages.ValidateDataResourceConfig.Response()

    def ConfigureProvider(self, request, context):
        return messages.ConfigureProvider.Response()

    def UpgradeResourceState(self, request, context):
        state = messages.DynamicValue(json=request.raw_state.json)
        return messages.UpgradeResourceState.Response(upgraded_state=state)

    def PlanResourceChange(self, request, context):
        return messages.PlanResourceChange.Response(diagnostics=refusal())

    def ReadDataSource(self, request, context):
        return messages.ReadDataSource.Response(diagnostics=refusal())

    def StopProvider(self, request, context):
        return messages.StopProvider.Response()


class Control(control_service.GRPCControllerServicer):
    """Terraform waits two seconds for a plugin that does not end when it is told to."""

    def __init__(self, told):
        self.told = told

    def Shutdown(self, request, context):
        self.told.set()
        return control_messages.Empty()


def main():
    with open(os.environ["CARLOS_CHECK_SCHEMA"], encoding="utf-8") as file:
        schema = json.load(file)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    service.add_ProviderServicer_to_server(Provider(schema), server)
    told = threading.Event()
    control_service.add_GRPCControllerServicer_to_server(Control(told), server)
    # An abstract socket is gone with its process.
    name = f"carlos-check-{os.getpid()}"
    server.add_insecure_port(f"unix-abstract:{name}")
    server.start()
    print(f"1|6|unix|@{name}|grpc|", flush=True)
    told.wait()
    server.stop(None).wait()


main()
