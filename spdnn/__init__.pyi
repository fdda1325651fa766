"""The types of the names that spdnn loads when they are first used."""

from spdnn import ops as ops
from spdnn.api import compile as compile
from spdnn.api import infer as infer
from spdnn.core.errors import SpdnnError as SpdnnError
from spdnn.core.features import Inputs as Inputs
from spdnn.core.network import Activation as Activation
from spdnn.core.network import Layer as Layer
from spdnn.core.network import Network as Network
from spdnn.core.network import from_matrices as from_matrices
from spdnn.core.result import Result as Result
from spdnn.engines.model import Model as Model
from spdnn.engines.taskgraph.settings import TaskgraphSettings as TaskgraphSettings
from spdnn.formats.radixnet import RadixNet as RadixNet
from spdnn.formats.readers import open_inputs as open_inputs
from spdnn.formats.readers import open_network as open_network
from spdnn.ops import models as models
from spdnn.ops.estimators import EstimatorModel as EstimatorModel
from spdnn.ops.onnx_model import OnnxModel as OnnxModel
from spdnn.report.rendering import load_records as load_records
from spdnn.runs.verify.classes import Agreement as Agreement
from spdnn.runs.verify.classes import Scores as Scores
from spdnn.runs.verify.classes import agreement as agreement
from spdnn.runs.verify.classes import score as score

__version__: str
